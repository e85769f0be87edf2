"""Trace compacted ranges back to their batches, and find those that a version is made of."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter

from tidemark.core.manifest import DataFile, Identity, Manifest, Replaced, digest, replaced_by
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.verify.result import ProofPart

CLOCK_SKEW_MAX = timedelta(minutes=10)  # between a writer's machine and the run's


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a version is made of: every batch of a writer up to the ``last`` one that its plan knew, and all ranges that
    it used. The clocks of writers and of the run do not matter.

    ``batches`` are the used ranges by writer and log, in order: the first and the last batch of adjacent ones.
    ``planned_at_us`` is when the run was planned, ``sealed_at_us`` when it wrote the seal.
    """

    planned_at_us: int
    sealed_at_us: int = 0
    last: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[tuple[str, TopicPartition], Sequence[tuple[int, int]]] = field(default_factory=dict)

    def used(self, identity: Identity) -> bool:
        writer, batch, log = identity
        spans = self.batches.get((writer, log), ())
        at = bisect_right(spans, batch, key=itemgetter(0)) - 1
        return at >= 0 and batch <= spans[at][1]

    def named(self, writer: str, batch: int) -> bool:
        """Whether the plan knew a batch by its number."""
        return batch <= self.last.get(writer, -1)

    def has(self, identity: Identity) -> bool:
        """Whether a range is part of the version."""
        writer, batch, _ = identity
        return self.named(writer, batch) or self.used(identity)

    def precedes(self, writer: str, batch: int, committed_at_us: int) -> bool:
        """Whether a batch was archived before the plan, so that no row of it may be missing from the version.

        A plan that overlooked batches did not name them either. So one that is older by more than any two clocks
        differ counts, whatever its number.
        """
        until_us = self.planned_at_us - CLOCK_SKEW_MAX // timedelta(microseconds=1)
        return self.named(writer, batch) or committed_at_us < until_us

    def follows(self, manifest: Manifest) -> bool:
        """Whether a batch was archived after the seal, whatever the clocks. A compaction may be of earlier batches."""
        since_us = self.sealed_at_us + CLOCK_SKEW_MAX // timedelta(microseconds=1)
        return not manifest.replaces and manifest.committed_at_us > since_us

    def rank(self, log: TopicPartition, manifest: Manifest) -> bool:
        """Of several manifests of one object, the lowest rank is the version's, if any is."""
        return not self.has((manifest.writer, manifest.batch, log))


class Lineage:
    """The compactions' manifests, and the manifests whose ranges they replace.

    ``Manifest`` itself requires that the replaced ranges tile a complete one.
    """

    def __init__(self, compactions: Iterable[Manifest]) -> None:
        known = tuple(compactions)
        self._compactions = {(item.writer, item.batch): item for item in known}
        self._replaced = replaced_by(known)
        self._expected: dict[tuple[str, int], list[tuple[Replaced, Manifest]]] = {}
        for manifest in known:
            for item in manifest.replaces:
                self._expected.setdefault((item.writer, item.batch), []).append((item, manifest))

    @property
    def derived_from(self) -> str:
        """The number of compacted ranges; empty if there are none."""
        return f", {len(self._replaced):,} ranges compacted since" if self._replaced else ""

    def too_new(self, manifest: Manifest) -> bool:
        """Whether it is a compaction written after the others were read, so that the replaced ranges count."""
        return bool(manifest.replaces) and (manifest.writer, manifest.batch) not in self._compactions

    def replaced(self, identity: Identity) -> bool:
        return identity in self._replaced

    def see(self, manifest: Manifest, where: str, check: ProofPart) -> None:
        """Compare a manifest with the compactions of its ranges."""
        expected = self._expected.get((manifest.writer, manifest.batch))
        if expected is None:
            return
        own = digest(manifest.to_json())
        ranges = {item.log: (item.range, item.rows) for item in manifest.ranges}
        for item, by in expected:
            place = f"{where}, replaced by {by.writer}/{by.batch}"
            check.equal("the digest of a replaced range's manifest", expected=item.digest, found=own, where=place)
            check.equal(
                "a replaced range and its rows",
                expected=(str(item.range), len(item.range)),
                found=(str(ranges[item.log][0]), ranges[item.log][1]) if item.log in ranges else "no range of the log",
                where=place,
            )
            files = sorted((file.key, file.checksum) for file in manifest.files if file.log == item.log)
            replaced = sorted((key, checksum) for key, checksum, _ in item.files)
            check.equal("the files of a replaced range", expected=replaced, found=files, where=place)

    def late(self, manifest: Manifest, file: DataFile, basis: Basis) -> tuple[OffsetRange, ...]:
        """The ranges of the file that the version's plan did not know, traced back through compactions."""
        if basis.has((manifest.writer, manifest.batch, file.log)):
            return ()
        if not manifest.replaces:
            return (file.range,)
        return tuple(item.range for item in self._origins(manifest, file.log, basis))

    def compare(self, log: TopicPartition, used: OffsetSet, check: ProofPart) -> None:
        """Every replaced range of the log must lie in ranges in use."""
        replaced = [pair for expected in self._expected.values() for pair in expected if pair[0].log == log]
        missing = subtract(normalise(item.range for item, _ in replaced), used)
        for item, by in replaced if missing else ():
            for span in subtract([item.range], subtract([item.range], missing)):
                check.differs(
                    "a range was replaced, but its replacement is missing",
                    expected=f"a complete range in place of {item.range} of {item.writer}/{item.batch}",
                    found=f"none with {span}",
                    where=f"{by.writer}/{by.batch}, {log}",
                )

    def _origins(self, manifest: Manifest, log: TopicPartition, basis: Basis) -> Iterator[Replaced]:
        """The ranges before all compactions, without those of the version."""
        for item in manifest.replaces:
            if item.log == log and not basis.has((item.writer, item.batch, log)):
                before = self._compactions.get((item.writer, item.batch))
                if before is None:
                    yield item
                else:
                    yield from self._origins(before, log, basis)
