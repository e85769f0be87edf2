"""Trace compacted ranges back to their batches, and find those that a version is made of."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from tidemark.core.manifest import DataFile, Identity, Manifest, Replaced, digest, replaced_by
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.verify.result import ProofPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a version is made of: everything committed until a moment, and all ranges it used.

    Clocks of machines differ, so a used range may look too late.
    ``batches`` are the used ranges by writer and log, in order: the first and the last batch of adjacent ones.
    """

    until_us: int
    batches: Mapping[tuple[str, TopicPartition], Sequence[tuple[int, int]]] = field(default_factory=dict)

    def used(self, identity: Identity) -> bool:
        writer, batch, log = identity
        spans = self.batches.get((writer, log), ())
        at = bisect_right(spans, batch, key=itemgetter(0)) - 1
        return at >= 0 and batch <= spans[at][1]

    def rank(self, log: TopicPartition, manifest: Manifest) -> tuple[bool, int]:
        """Of several manifests of one object, the lowest rank is the version's."""
        return not self.used((manifest.writer, manifest.batch, log)), manifest.committed_at_us


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
        self._committed_at_us: dict[tuple[str, int], int] = {}  # of manifests with replaced ranges

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
        self._committed_at_us[manifest.writer, manifest.batch] = manifest.committed_at_us
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
        """The ranges of the file that were committed too late for a version, traced back through compactions."""
        if basis.used((manifest.writer, manifest.batch, file.log)):
            return ()
        if not manifest.replaces:
            return (file.range,) if manifest.committed_at_us > basis.until_us else ()
        return tuple(
            item.range
            for item in self._origins(manifest, file.log, basis)
            if self._committed_at_us.get((item.writer, item.batch), 0) > basis.until_us
        )

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
        """The ranges before all compactions, without those that the version used."""
        for item in manifest.replaces:
            if item.log == log and not basis.used((item.writer, item.batch, log)):
                before = self._compactions.get((item.writer, item.batch))
                if before is None:
                    yield item
                else:
                    yield from self._origins(before, log, basis)
