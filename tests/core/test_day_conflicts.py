"""Copies of the same offsets that put records on different days: what the rule finds, and what it need not read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import DAYS, Truth, files_of, log, manifest_of, span
from tests.plans import make_plan
from tidemark.core.committed import Committed, CopyIndex, contested
from tidemark.core.cover import CoverPart, best_cover
from tidemark.core.day_conflicts import DayConflict, Side, find_conflicts, find_contested
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, OffsetSet
from tidemark.core.plan import Target, Used
from tidemark.core.planner import Preference

TUESDAY, WEDNESDAY, THURSDAY = DAYS
NARROW, WIDE = "max_distance_days=1", "max_distance_days=30"


def copy(writer: str, start: int, truth: Sequence[date | None], settings: str | None, cut: str = "whole") -> Committed:
    committed = span(start, start + len(truth))
    rows: Truth = (*([None] * start), *truth)
    files = tuple(replace(file, checksum=f"{writer} {file.checksum}") for file in files_of(log(), committed, rows, cut))
    number = sum(day is not None for day in truth)
    return Committed(range=committed, rows=number, writer=writer, batch=0, files=files, day_settings=settings)


def used(item: Committed, start: int, end: int) -> Used:
    return Used(range=span(start, end), committed=item.range, writer=item.writer, batch=item.batch)


class Rows:
    """The days of the copies' rows; ``asked`` counts the rows that were read."""

    def __init__(self, truths: Mapping[str, Sequence[date | None]]) -> None:
        self.truths, self.asked = truths, 0

    def read(self, item: Committed, within: OffsetSet) -> Iterator[tuple[int, date]]:
        for at, day in enumerate(self.truths[item.writer], start=item.range.start):
            if day is not None and any(at in part for part in within):
                self.asked += 1
                yield at, day


def conflicts(
    copies: Sequence[Committed],
    uses: Mapping[date, Sequence[Used]],
    rows: Rows,
    about: Iterable[date] = DAYS,
    *,
    all_settings: bool = False,
) -> tuple[DayConflict, ...]:
    within = contested(copies, all_settings=all_settings)
    items = tuple(find_contested(log(), within, copies, uses, all_settings=all_settings))
    return find_conflicts(items, set(about), rows.read)


OLD = (TUESDAY,) * 10  # with max_distance_days 1, the last five fall back to the timestamp
NEW = (*((TUESDAY,) * 5), *((THURSDAY,) * 5))


def story(old: Sequence[date], new: Sequence[date], settings: tuple[str | None, str | None]) -> tuple[DayConflict, ...]:
    """Tuesday is sealed from the old copy, Thursday is planned from the new one."""
    one, two = copy("refill", 0, old, settings[0]), copy("stream", 0, new, settings[1])
    uses = {TUESDAY: [used(one, 0, 10)], THURSDAY: [used(two, 0, 10)]}
    return conflicts([one, two], uses, Rows({"refill": old, "stream": new}), {THURSDAY})


def test_records_that_another_days_key_moves_into_a_second_day_are_named() -> None:
    (found,) = story(OLD, NEW, (NARROW, WIDE))
    sides = (
        Side(day=TUESDAY, writer="refill", batch=0, day_settings=NARROW, has=True),
        Side(day=THURSDAY, writer="stream", batch=0, day_settings=WIDE, has=True),
    )
    assert found == DayConflict(log=log(), offset=5, records=5, sides=sides)
    assert (found.twice, found.days) == (True, (TUESDAY, THURSDAY))
    assert "5 records of flights-0 in several sealed days, the first at offset 5" in str(found)


def test_records_that_the_opposite_change_leaves_in_no_day_are_named() -> None:
    (found,) = story(NEW, OLD, (WIDE, NARROW))
    assert (found.offset, found.records, found.twice) == (5, 5, False)
    assert found.days == (TUESDAY, THURSDAY)


def test_copies_of_unknown_settings_are_compared() -> None:
    assert [item.records for item in story(OLD, NEW, (None, None))] == [5]
    assert [item.records for item in story(OLD, NEW, (None, WIDE))] == [5]


def test_copies_of_equal_known_settings_agree_without_a_comparison() -> None:
    assert contested([copy("a", 0, OLD, WIDE), copy("b", 0, OLD, WIDE)]) == ()
    assert contested([copy("a", 0, OLD, WIDE), copy("b", 0, OLD, NARROW)]) == (span(0, 10),)
    assert contested([copy("a", 0, OLD, None), copy("b", 5, OLD, None)]) == (span(5, 10),)


def test_days_that_use_the_same_copy_are_never_in_conflict() -> None:
    one, two = copy("refill", 0, OLD, NARROW), copy("stream", 0, NEW, WIDE)
    rows = Rows({"refill": OLD, "stream": NEW})
    uses = {day: [used(two, 0, 10)] for day in (TUESDAY, THURSDAY)}
    assert conflicts([one, two], uses, rows) == ()
    assert rows.asked == 0


def test_rows_are_read_only_where_manifests_leave_a_doubt() -> None:
    one, two = copy("refill", 0, OLD, NARROW, "days"), copy("stream", 0, NEW, WIDE, "days")
    rows = Rows({"refill": OLD, "stream": NEW})
    uses = {TUESDAY: [used(one, 0, 10)], THURSDAY: [used(two, 0, 10)]}
    assert [item.offset for item in conflicts([one, two], uses, rows)] == [5]
    assert rows.asked == 10  # offsets 5 to 9 of both: the first five are of Tuesday in every object
    assert conflicts([one, two], uses, rows, {WEDNESDAY}) == ()
    assert rows.asked == 10


def test_a_record_of_a_day_that_is_not_sealed_waits_for_it() -> None:
    one, two = copy("refill", 0, NEW, WIDE), copy("stream", 0, OLD, NARROW)
    uses = {TUESDAY: [used(one, 0, 10)], WEDNESDAY: [used(two, 0, 10)]}
    assert conflicts([one, two], uses, Rows({"refill": NEW, "stream": OLD})) == ()


def test_a_compaction_stands_for_the_range_that_it_has_replaced() -> None:
    whole = replace(copy("compact", 0, OLD, NARROW), batch=3)
    replaced = Used(range=span(2, 6), committed=span(2, 6), writer="refill", batch=7)
    assert CopyIndex([whole]).parts([replaced], (span(0, 10),)) == [CoverPart(index=0, range=span(2, 6))]


def test_a_plan_uses_the_current_settings_first_and_then_what_was_used_before() -> None:
    copies = [copy("a", 0, OLD, NARROW), copy("b", 4, OLD, WIDE)]
    manifests = [_manifest(item) for item in copies]
    target = Target(log=log(), start=0, end=14, log_start=0, high_watermark=14)

    def parts(prefer: Preference) -> list[tuple[str, OffsetRange]]:
        plan = make_plan(
            stream="flights",
            time_zone="America/New_York",
            run="r",
            requested=DAYS[:1],
            targets=[target],
            manifests=manifests,
            seals=[],
            prefer=prefer,
        )
        return [(item.writer, item.range) for item in plan.logs[0].used]

    assert parts(Preference(day_settings=WIDE)) == [("a", span(0, 4)), ("b", span(4, 14))]
    assert parts(Preference(day_settings=NARROW)) == [("a", span(0, 10)), ("b", span(10, 14))]
    before = {log(): [used(copies[0], 0, 4), used(copies[1], 4, 14)]}
    assert parts(Preference(day_settings="another", used=before)) == [("a", span(0, 4)), ("b", span(4, 14))]


def _manifest(item: Committed) -> Manifest:
    truth = tuple(OLD[0] for _ in range(item.range.end))
    made = manifest_of(item.writer, item.batch, {log(): item.range}, {log(): truth}, "whole")
    return replace(made, day_settings=item.day_settings)


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[Committed], dict[str, Sequence[date | None]], dict[date, list[Used]]]:
    """Some copies with their own opinion on each record's day, and the copies that each sealed day has used."""
    copies: list[Committed] = []
    truths: dict[str, Sequence[date | None]] = {}
    for number in range(draw(st.integers(1, 4))):
        start, size = draw(st.integers(0, 8)), draw(st.integers(1, 10))
        settings = draw(st.sampled_from([None, NARROW, WIDE]))
        # Copies of equal known settings agree.
        days = [_day(settings, at) if settings else draw(st.sampled_from(DAYS)) for at in range(start, start + size)]
        truths[f"w{number}"] = [day if draw(st.booleans()) or settings else None for day in days]
        if any(truths[f"w{number}"]):
            cut = draw(st.sampled_from(["whole", "days", "rows"]))
            copies.append(copy(f"w{number}", start, truths[f"w{number}"], settings, cut))
    uses: dict[date, list[Used]] = {}
    for day in DAYS:
        if draw(st.booleans()):
            chosen = draw(st.permutations(copies))[: draw(st.integers(0, len(copies)))]
            parts = best_cover(span(0, 18), chosen)
            uses[day] = [used(chosen[part.index], part.range.start, part.range.end) for part in parts]
    return copies, truths, uses


def _day(settings: str, offset: int) -> date:
    return DAYS[(offset * (3 if settings == WIDE else 5) + offset // 3) % 3]


@given(archives())
def test_the_rule_finds_exactly_the_records_that_an_oracle_counts_in_two_days_or_in_none(
    world: tuple[list[Committed], dict[str, Sequence[date | None]], dict[date, list[Used]]],
) -> None:
    copies, truths, uses = world
    expected = set()
    for offset in range(18):
        having, claims = [], set()
        readers = {day: next((item for item in own if offset in item.range), None) for day, own in uses.items()}
        for day, item in readers.items():
            if item is not None:
                is_of = truths[item.writer][offset - item.committed.start]
                claims |= {is_of} - {None}
                if is_of == day:
                    having.append(day)
        read = {day for day, item in readers.items() if item is not None}
        if len(claims) > 1 and (len(having) > 1 or (not having and claims <= read)):
            expected.add(offset)
    rows = Rows(truths)
    for all_settings in (False, True):
        found = conflicts(copies, uses, rows, all_settings=all_settings)
        assert sum(item.records for item in found) == len(expected)
        assert {item.offset for item in found} <= expected
    if not expected:
        assert not found
