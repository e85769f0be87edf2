"""A seal's claims, and its ranges compared with the manifests."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from tidemark.core.errors import RequestError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import digest
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, range_or_none, subtract
from tidemark.core.plan import Hole, Used
from tidemark.core.seal import Seal, SealedLog, parse_seal
from tidemark.s3 import ObjectStore
from tidemark.verify.archive import Derived, ListedRange
from tidemark.verify.lineage import Basis
from tidemark.verify.result import ProofPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The seal to verify and that of the version before, if they parse. ``basis`` is what the version's rows are made
    of; for a rollback, that of the restored version. ``latest``: no later version is sealed. ``snapshots`` are those of
    all versions, in the published table and in the quarantine."""

    key: str
    version: int
    seal: Seal | None
    before: Seal | None
    basis: Basis
    latest: bool
    snapshots: frozenset[tuple[int | None, int | None]]


def read_claims(
    store: ObjectStore, layout: Layout, time_zone: str, day: date, version: int | None, *, check: ProofPart
) -> Claims:
    """The seal of a version, the latest by default, and its place in the day's chain.

    Raises RequestError for a day or version that was never sealed.
    """
    bodies = {}
    for item in store.list(f"{layout.seal_prefix}{day.isoformat()}/"):
        bodies[layout.parse_seal_key(item.key)[1]] = store.get(item.key) or b""
    wanted = version if version is not None else max(bodies, default=1)
    key = layout.seal_key(day, wanted)
    if wanted not in bodies:
        raise RequestError(
            "there is no such seal",
            expected=f"one of the versions {', '.join(map(str, sorted(bodies)))}" if bodies else "a sealed day",
            found=f"{day} version {wanted}",
            where=key,
            hint="A reconcile run seals a day",
        )
    check.derived_from = f"{len(bodies):,} {'versions' if len(bodies) > 1 else 'version'} of the day"
    seals = {number: seal for number in sorted(bodies) if (seal := _parse(layout, day, number, bodies[number], check))}
    for number in sorted(bodies):
        if number - 1 not in bodies and number > 1:
            where = layout.seal_key(day, number - 1)
            check.differs("a version of the day has no seal", expected="a seal", found="no object", where=where)
    for number, seal in seals.items():
        if number - 1 in bodies:
            before = digest(bodies[number - 1])
            where = layout.seal_key(day, number)
            check.equal("the digest of the version before", expected=before, found=seal.previous, where=where)
    seal = seals.get(wanted)
    if seal is not None:
        check.equal("time zone of the days", expected=time_zone, found=seal.time_zone, where=key)
        _compare_named(store, layout, seal, check)
    basis = seal
    while basis is not None and basis.rolled_back_to is not None:
        basis = seals.get(basis.rolled_back_to, replace(basis, rolled_back_to=None))
    return Claims(
        key=key,
        version=wanted,
        seal=seal,
        before=seals.get(wanted - 1),
        basis=_basis(basis) if basis is not None else Basis(planned_at_us=0),
        latest=wanted == max(bodies),
        snapshots=frozenset((item.snapshot_id, item.quarantine_snapshot_id) for item in seals.values()),
    )


def _compare_named(store: ObjectStore, layout: Layout, seal: Seal, check: ProofPart) -> None:
    """The list of objects and the seal of the day before are those that the seal names by their digests."""
    named = {layout.object_list_key(seal.day, seal.objects.sha256): ("the list of objects", seal.objects.sha256)}
    if (before := seal.previous_day) is not None:
        named[layout.seal_key(before.day, before.version)] = ("the seal of the day before", before.digest)
    for key, (what, expected) in named.items():
        body = store.get(key)
        check.equal(what, expected=expected, found="no object" if body is None else digest(body), where=key)


def _basis(seal: Seal) -> Basis:
    batches: dict[tuple[str, TopicPartition], set[tuple[int, int]]] = {}
    for item in seal.logs:
        for part in item.used:
            batches.setdefault((part.writer, item.log), set()).add((part.batch, part.last))
    return Basis(
        planned_at_us=seal.planned_at_us,
        sealed_at_us=seal.sealed_at_us,
        batches={key: sorted(spans) for key, spans in batches.items()},
        last={item.writer: item.batch for item in seal.last_batches},
    )


def compare_ranges(seal: Seal, archive: Derived, layout: Layout, check: ProofPart) -> None:
    """The committed ranges cover what the seal proves, and the batches that it names have these ranges."""
    for item in seal.logs:
        whole = range_or_none(item.start, item.end)
        batches = archive.batches.get(item.log, {})
        committed = archive.committed(item.log)
        lost = [gap.range for gap in item.gaps]
        check.ranges(
            "no manifest commits offsets that the seal proves",
            subtract(subtract([whole] if whole else [], lost), committed),
            expected="a committed range",
            found="none",
            log=item.log,
        )
        holes = {hole.range: hole for hole in item.holes}
        for used in item.used:
            found = _batches(used, batches.get(used.writer, {}))
            key = layout.manifest_key(used.writer, used.batch)
            if found is None:
                last = "" if used.last_batch is None else f" up to batch {used.last_batch}"
                check.differs(
                    "a range that the seal used is not committed",
                    expected=f"{used.committed} by {used.writer}, batch {used.batch}{last}",
                    found="no such batches",
                    where=f"{key}, {item.log}",
                )
                continue
            absent = len(used.committed) - sum(batch.rows for batch in found)
            missing = min(max(absent, 0), len(used.range))
            hole = holes.pop(used.range, None)
            claimed = hole.missing if hole is not None else 0
            where = f"{item.log}, offsets {used.range}"
            check.equal("offsets without a row", expected=missing, found=claimed, where=where)
            if hole is not None and hole.exact and hole.evidence is not None:
                causes = sum(hole.counts.values())
                check.equal("the causes of a hole add up to it", expected=missing, found=causes, where=where)
        for span in holes:
            where = f"{item.log}, offsets {span}"
            check.differs("a hole of no used range", expected="a used range", found=span, where=where)
    check.derived_from = f"{sum(len(item.used) for item in seal.logs):,} used ranges of {len(seal.logs):,} logs"


def compare_reach(seal: Seal, basis: Basis, archive: Derived, check: ProofPart) -> None:
    """The seal used the offsets of every row of the day that was archived before its plan, and calls none of them lost.

    A rollback repeats the seal of the version that it restores, so that version's plan counts.
    """
    for log, writers in archive.batches.items():
        sealed = seal.log(log)
        used = [item.range for item in sealed.used] if sealed is not None else []
        archived = normalise(
            span
            for writer, own in writers.items()
            for number, batch in own.items()
            if basis.precedes(writer, number, batch.committed_at_us)
            for span in batch.of_day
        )
        check.ranges(
            "rows of the day were archived before the plan",
            subtract(archived, used),
            expected="used offsets of the seal",
            found="none",
            log=log,
        )


def compare_lost(seal: Seal, basis: Basis, archive: Derived, layout: Layout, check: ProofPart) -> None:
    """No batch that was archived before the plan has offsets that the seal calls lost, whatever their day."""
    key = layout.seal_key(seal.day, seal.version)
    for item in seal.logs:
        lost = [gap.range for gap in item.gaps]
        for writer, own in archive.batches.get(item.log, {}).items() if lost else ():
            for number, batch in own.items():
                if basis.precedes(writer, number, batch.committed_at_us):
                    check.ranges(
                        "offsets that the seal calls lost were archived before its plan",
                        (part for gap in lost if (part := batch.range.intersect(gap)) is not None),
                        expected=f"no manifest with offsets that {key} calls lost",
                        found=layout.manifest_key(writer, number),
                        log=item.log,
                    )


def compare_copies(seal: Seal, archive: Derived, check: ProofPart) -> None:
    """The seal counts the further copies of its rows that were archived when its run was planned.

    The run counted all that were there when it finalized its plan. The seal names the batches of step ``plan``, so
    copies that came in between may be counted or not.
    """
    where = f"seal of {seal.day} version {seal.version}"
    known = sum(archive.copies.values()) - sum(len(bits) for bits in archive.rows.values())
    if archive.unused:
        check.notes.append(
            f"duplicates_trimmed is not compared: batches of this version have {archive.unused:,} rows of the day at"
            " offsets that it did not use, and the run counted no copies at those offsets"
        )
    elif known < seal.duplicates_trimmed <= known + archive.undated:
        check.notes.append(
            f"duplicates_trimmed is not compared: {archive.undated:,} archived rows of the day came at about the time"
            " of the run, which may have counted them"
        )
    elif known < seal.duplicates_trimmed and archive.deleted:
        check.notes.append("duplicates_trimmed is not compared: manifests were deleted, which may have had copies")
    else:
        check.equal("duplicates_trimmed", expected=known, found=seal.duplicates_trimmed, where=where)


def proven_by_seal(sealed: SealedLog | None, holes: OffsetSet) -> OffsetSet:
    """The offsets that the seal proves transactional or compacted.

    A range with more of these offsets than its evidence counts proves none: it does not show which ones it means.
    """
    if sealed is None:
        return ()
    proven = (hole for hole in sealed.holes if _within(holes, hole.range) <= sum(hole.counts.values()))
    return subtract(holes, subtract(holes, _evidence(proven)))


def doubtful(sealed: SealedLog) -> OffsetSet:
    """The ranges of the seal's holes without evidence."""
    return subtract((hole.range for hole in sealed.holes), _evidence(sealed.holes))


def _evidence(holes: Iterable[Hole]) -> list[OffsetRange]:
    """The ranges of holes with evidence, without their unexplained offsets."""
    found: list[OffsetRange] = []
    for hole in holes:
        evidence = hole.evidence
        if evidence is not None and sum(map(len, evidence.ranges)) == evidence.unexplained:
            found += subtract([hole.range], evidence.ranges)
    return found


def _within(offsets: OffsetSet, span: OffsetRange) -> int:
    """The number of these offsets in the span."""
    first = bisect_right(offsets, span.start, key=lambda item: item.end)
    last = bisect_left(offsets, span.end, key=lambda item: item.start)
    return sum(min(item.end, span.end) - max(item.start, span.start) for item in offsets[first:last])


def _parse(layout: Layout, day: date, version: int, body: bytes, check: ProofPart) -> Seal | None:
    key = layout.seal_key(day, version)
    try:
        seal = parse_seal(body, where=key)
    except TidemarkError as error:
        check.differs("a seal does not parse", expected="a seal", found=error, where=key)
        return None
    named = f"{seal.stream} {seal.day} version {seal.version}"
    check.equal("whose seal it is", expected=f"{layout.stream} {day} version {version}", found=named, where=key)
    return seal


def _batches(used: Used, batches: dict[int, ListedRange]) -> Sequence[ListedRange] | None:
    """The adjacent batches of a used range, from its start to its end; None if some are missing."""
    # Of two with the same start the later one is a compaction, which has replaced the other.
    starting = {
        batches[number].range.start: batches[number] for number in sorted(batches) if used.batch <= number <= used.last
    }
    found = []
    at = used.committed.start
    while at < used.committed.end and at in starting:
        found.append(starting[at])
        at = starting[at].range.end
    return found if at == used.committed.end and used.last in batches and used.batch in batches else None
