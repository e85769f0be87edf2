"""Whether over all sealed days of a stream each archived record is in exactly one of them.

Nothing comes from the plan or the ledger. Every manifest is read, and the latest seal of each day names the copies that
its rows are from. Rows are read only at offsets that days have used from several copies whose rows per day differ.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, tzinfo

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.segment import Tables
from tidemark.archive.manifests import manifest_bodies
from tidemark.core.committed import Committed, CopyIndex, contested
from tidemark.core.day_conflicts import DayConflict, find_conflicts, find_contested
from tidemark.core.errors import FormatError, RequestError, TidemarkError
from tidemark.core.instruments import VERIFY_DIFFERENCES
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest, parse_manifest
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, count, normalise, subtract
from tidemark.core.plan import Target, Used
from tidemark.core.planner import files_by_range
from tidemark.core.seal import Seal, SealedLog, parse_seal
from tidemark.definitions.stream import load_stream
from tidemark.objects.days import RowDays
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.telemetry.steps import export_step
from tidemark.verify.archive import Derived
from tidemark.verify.result import ProofPart, Verdict, verdict_of

Progress = Callable[[str], None]
_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerification:
    """The check of all sealed days of a stream together.

    ``waiting`` is an upper bound of the archived rows that no seal has: of days without one, copies included, and at
    offsets that their day's seal has not read, as late records. They are no difference: a next run takes them.
    """

    stream: str
    days: int
    waiting: int
    checks: tuple[ProofPart, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict, by the same rule as for one day."""
        return verdict_of(self.checks)


def verify_stream(settings: Settings, stream_name: str, progress: Progress = lambda _: None) -> StreamVerification:
    """Compare the copies that the sealed days of a stream have used.

    Raises ConfigError for an unknown stream, RequestError if no day is sealed, ServiceError if S3 does not answer.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    began = time.monotonic()
    check = ProofPart(name="copies")
    done = False
    try:
        copies = SealedCopies(store=store, layout=layout, zone=stream.zone, check=check, progress=progress)
        seals = copies.seals()
        if not seals and not check.total:
            raise RequestError(
                "no day of the stream is sealed",
                expected="a sealed day",
                found="none",
                where=layout.seal_prefix,
                hint="A reconcile run seals a day",
            )
        copies.compare(seals, set(seals))
        done = True
    finally:
        export_step(
            deployment=settings.deployment,
            stream=stream.name,
            step="verify",
            seconds=time.monotonic() - began,
            failed=not done,
            figures={VERIFY_DIFFERENCES: check.total},
        )
    return StreamVerification(stream=stream.name, days=len(seals), waiting=copies.waiting, checks=(check,))


@dataclass(slots=True, kw_only=True)
class SealedCopies:
    """Reads seals, manifests and, where they leave a doubt, rows.

    ``waiting`` bounds the archived rows that no seal has. ``history`` is what the manifests commit. Both are known once
    the manifests are read.
    """

    store: ObjectStore
    layout: Layout
    zone: tzinfo
    check: ProofPart
    progress: Progress
    waiting: int = 0
    history: History = field(default_factory=lambda: History([]))

    def seals(self) -> dict[date, Seal]:
        """The latest seal of each day. One that does not parse is a difference."""
        latest: dict[date, tuple[int, str]] = {}
        for item in self.store.list(self.layout.seal_prefix):
            day, version = self.layout.parse_seal_key(item.key)
            latest[day] = max(latest.get(day, (0, "")), (version, item.key))
        found: dict[date, Seal] = {}
        for number, (day, (_, key)) in enumerate(sorted(latest.items()), start=1):
            self.progress(f"seal {number:,} of {len(latest):,}")
            try:
                found[day] = parse_seal(self.store.get(key) or b"", where=key)
            except TidemarkError as error:
                self.check.differs("a seal does not parse", expected="a seal", found=error, where=key)
        return found

    def compare(self, seals: Mapping[date, Seal], about: set[date]) -> None:
        """Every record that a copy puts into one of the days ``about`` is in exactly one of the sealed days."""
        self.history, manifests = self._read_history(seals)
        history = self.history
        rows = RowDays(store=self.store, zone=self.zone)
        offsets = logs = 0
        for log, uses in _uses(seals).items():
            copies = _copies(history, log)
            within = contested(copies, all_settings=True)
            several = [item.range for item in find_contested(log, within, copies, uses, all_settings=True)]
            logs, offsets = logs + 1, offsets + count(several)
            found: list[DayConflict] = []
            for part in several:
                self.progress(f"offsets {part} of {log}")
                own = history.overlapping(log, part)
                items = find_contested(log, (part,), own, uses, all_settings=True)
                try:
                    found += find_conflicts(items, about, rows.read)
                except FormatError as error:
                    self.check.unknown.append(f"offsets {part} of {log}: {error}")
            for conflict in found:
                self._differs(conflict, seals)
        self.check.unknown += [f"no object {key}: its rows can't be compared" for key in sorted(rows.missing)]
        self.check.derived_from = (
            f"{len(seals):,} seals, {manifests:,} manifests, {logs:,} logs; days have used {offsets:,} offsets from"
            " several copies"
        )

    def compare_day(self, seal: Seal, archive: Derived, *, latest: bool) -> None:
        """No record of this day is in a second sealed day, or in none, because days used different copies of it.

        Rows that other copies put into this day, but the used copy into another day, are no part of the version: they
        are taken out of ``archive``. Other seals are read only if copies of the seal's offsets may disagree.
        """
        mixed = {}
        for item in seal.logs:
            offsets = contested(archive.copies_of(item.log))
            if inside := subtract(offsets, subtract(offsets, [used.range for used in item.used])):
                mixed[item.log] = inside
        if not mixed:
            self.check.derived_from = "no offset has copies of several day settings"
            return
        seals = self.seals() if latest else {}
        self.compare(seals, {seal.day})
        if not latest:
            self.check.derived_from = "nothing: a later version of the day is sealed"
        for log in seal.logs:
            if log.log in mixed and log.log in archive.rows:
                self._take_out(log, mixed[log.log], seal.day, archive)

    def _take_out(self, log: SealedLog, within: OffsetSet, day: date, archive: Derived) -> None:
        copies = [copy for part in within for copy in self.history.overlapping(log.log, part)]
        rows = RowDays(store=self.store, zone=self.zone)
        for part in CopyIndex(copies).parts(log.used, within):
            try:
                for offset, own in rows.read(copies[part.index], (part.range,)):
                    if own != day:
                        span = OffsetRange(start=offset, end=offset + 1)
                        archive.elsewhere += archive.rows[log.log].clear(span)
            except FormatError as error:
                self.check.unknown.append(f"offsets {part.range} of {log.log}: {error}")

    def _differs(self, conflict: DayConflict, seals: Mapping[date, Seal]) -> None:
        versions = ", ".join(f"{day} version {seals[day].version}" for day in conflict.days if day in seals)
        self.check.differs(
            "copies of the same offsets put records on different days",
            expected="each record in one sealed day",
            found=f"{conflict} (sealed: {versions})",
            where=f"{conflict.log}, offset {conflict.offset}",
        )

    def _read_history(self, seals: Mapping[date, Seal]) -> tuple[History, int]:
        read = {
            (day, item.log): normalise(used.range for used in item.used)
            for day, seal in seals.items()
            for item in seal.logs
        }
        parts: list[Tables] = []
        number = 0
        listed = self.store.list(self.layout.manifest_prefix)
        for bodies in manifest_bodies(self.store, listed, at_once=_AT_ONCE):
            manifests: list[Manifest] = []
            for key, body in bodies:
                try:
                    manifests.append(parse_manifest(body or b"", where=key))
                except TidemarkError as error:
                    self.check.differs("a manifest does not parse", expected="a manifest", found=error, where=key)
            number += len(bodies)
            self.progress(f"{number:,} manifests")
            for manifest in manifests:
                for file in manifest.files if not manifest.replaces else ():  # a compaction's rows count already
                    for rows in file.days:
                        span = OffsetRange(start=rows.first_offset, end=rows.last_offset + 1)
                        self.waiting += min(rows.rows, count(subtract([span], read.get((rows.day, file.log), ()))))
            parts.append(Tables.build(list(self._with_ranges(manifests))))
        return History(parts), number

    def _with_ranges(self, manifests: Sequence[Manifest]) -> Iterator[Manifest]:
        """The manifests whose files all belong to one of their ranges. Another one is a difference."""
        for manifest in manifests:
            try:
                files_by_range(manifest)
            except FormatError as error:
                self.check.differs(error.problem, expected=error.expected, found=error.found, where=str(error.where))
            else:
                yield manifest


def _uses(seals: Mapping[date, Seal]) -> dict[TopicPartition, dict[date, Sequence[Used]]]:
    found: dict[TopicPartition, dict[date, Sequence[Used]]] = {}
    for day, seal in seals.items():
        for item in seal.logs:
            found.setdefault(item.log, {})[day] = item.used
    return found


def _copies(history: History, log: TopicPartition) -> Sequence[Committed]:
    """The log's ranges without their files; regular ones that nothing overlaps come as one."""
    extent = history.extents().get(log)
    if extent is None:
        return ()
    start, end = extent
    target = Target(log=log, start=start, end=end, log_start=start, high_watermark=end)
    return history.committed([target], (), {})[log]
