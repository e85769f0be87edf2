"""Compacted ranges followed back to the batches that they came from, and which of them a version is made of."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from tidemark.core.manifest import DataFile, Identity, Manifest, Replaced, digest, replaced_by
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, normalise, subtract
from tidemark.verify.result import ProofPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a version is made of: all that was committed until a moment, and the ranges it used, however late those say
    they are: the moment is one machine's, and their manifests another's.

    ``batches`` are those ranges, by writer and log: each the first and the last batch of several in a row, in order.
    """

    until_us: int
    batches: Mapping[tuple[str, TopicPartition], Sequence[tuple[int, int]]] = field(default_factory=dict)

    def used(self, identity: Identity) -> bool:
        """Whether the version used the range."""
        writer, batch, log = identity
        spans = self.batches.get((writer, log), ())
        at = bisect_right(spans, batch, key=itemgetter(0)) - 1
        return at >= 0 and batch <= spans[at][1]

    def rank(self, log: TopicPartition, manifest: Manifest) -> tuple[bool, int]:
        """How far a manifest's range is from being part of the version; the lowest is the nearest."""
        return not self.used((manifest.writer, manifest.batch, log)), manifest.committed_at_us


class Lineage:
    """What the compactions' manifests say, and what was seen of the manifests that they replace ranges of.

    That the replaced ranges tile a complete one is part of such a manifest's form: no other one parses.
    """

    def __init__(self, compactions: Iterable[Manifest]) -> None:
        known = tuple(compactions)
        self._compactions = {(item.writer, item.batch): item for item in known}
        self._replaced = replaced_by(known)
        self._expected: dict[tuple[str, int], list[tuple[Replaced, Manifest]]] = {}
        for manifest in known:
            for item in manifest.replaces:
                self._expected.setdefault((item.writer, item.batch), []).append((item, manifest))
        self._committed_at_us: dict[tuple[str, int], int] = {}  # of the manifests that ranges are replaced of

    @property
    def looked_at(self) -> str:
        """How much there is of it; empty where nothing was compacted."""
        return f", {len(self._replaced):,} ranges compacted since" if self._replaced else ""

    def too_new(self, manifest: Manifest) -> bool:
        """Whether it is a compaction that came after the others were read: what it replaces counts once more."""
        return bool(manifest.replaces) and (manifest.writer, manifest.batch) not in self._compactions

    def replaced(self, identity: Identity) -> bool:
        """Whether nobody uses the range any more."""
        return identity in self._replaced

    def see(self, manifest: Manifest, where: str, check: ProofPart) -> None:
        """Compare a manifest with what compactions say of its ranges."""
        expected = self._expected.get((manifest.writer, manifest.batch))
        if expected is None:
            return
        self._committed_at_us[manifest.writer, manifest.batch] = manifest.committed_at_us
        own = digest(manifest.to_json())
        ranges = {item.log: (item.range, item.rows) for item in manifest.ranges}
        for item, by in expected:
            told = f"{where}, replaced by {by.writer}/{by.batch}"
            check.equal("the digest of a replaced range's manifest", expected=item.digest, found=own, where=told)
            check.equal(
                "a replaced range and its rows",
                expected=(str(item.range), len(item.range)),
                found=(str(ranges[item.log][0]), ranges[item.log][1]) if item.log in ranges else "no range of the log",
                where=told,
            )
            files = sorted((file.key, file.checksum) for file in manifest.files if file.log == item.log)
            check.equal("the files of a replaced range", expected=sorted(item.files), found=files, where=told)

    def late(self, manifest: Manifest, file: DataFile, basis: Basis) -> tuple[OffsetRange, ...]:
        """Where the file's rows came too late for a version; of a compacted file that is as late as they first came."""
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
        """Every replaced range of the log lies in ranges that are used."""
        replaced = [pair for expected in self._expected.values() for pair in expected if pair[0].log == log]
        missing = subtract(normalise(item.range for item, _ in replaced), used)
        for item, by in replaced if missing else ():
            for span in subtract([item.range], subtract([item.range], missing)):
                check.differs(
                    "a range was replaced, and nothing is there in its place",
                    expected=f"a complete range in place of {item.range} of {item.writer}/{item.batch}",
                    found=f"none with {span}",
                    where=f"{by.writer}/{by.batch}, {log}",
                )

    def _origins(self, manifest: Manifest, log: TopicPartition, basis: Basis) -> Iterator[Replaced]:
        """What a compaction has replaced and was not used, back to ranges that are no compaction's."""
        for item in manifest.replaces:
            if item.log == log and not basis.used((item.writer, item.batch, log)):
                before = self._compactions.get((item.writer, item.batch))
                if before is None:
                    yield item
                else:
                    yield from self._origins(before, log, basis)
