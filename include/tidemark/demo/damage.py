"""The archive as the demo sees it: its state, and the demo's two kinds of damage."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.archive.manifests import read_manifests
from tidemark.core.errors import StackError
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest
from tidemark.core.offsets import OffsetRange, OffsetSet, count, normalise, subtract
from tidemark.s3 import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A deleted manifest, and the offsets by partition that no other manifest holds."""

    key: str
    gaps: Mapping[int, OffsetSet]

    @property
    def offsets(self) -> int:
        return sum(count(ranges) for ranges in self.gaps.values())


class DamagedArchive:
    """One stream's archive of a topic that was never recreated."""

    def __init__(self, store: ObjectStore, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def manifests(self) -> dict[str, Manifest]:
        """Every manifest by its key."""
        found = read_manifests(self._store, self._layout)
        return {self._layout.manifest_key(item.writer, item.batch): item for item in found}

    def holds(self, ends: Mapping[int, int]) -> bool:
        """Whether every offset below the partitions' ends is archived."""
        return _complete(self.manifests(), ends)

    def writer_holds(self, ends: Mapping[int, int], *, not_writers: frozenset[str]) -> str | None:
        """A writer other than ``not_writers`` that archived every offset below the ends; None if there is none yet."""
        found = self.manifests()
        for writer in sorted({item.writer for item in found.values()} - not_writers):
            if _complete({key: item for key, item in found.items() if item.writer == writer}, ends):
                return writer
        return None

    def writers(self) -> frozenset[str]:
        return frozenset(item.writer for item in self.manifests().values())

    def lose_checkpoint(self) -> int:
        """Delete the archive stream's checkpoint. Return the number of its objects."""
        keys = [item.key for item in self._store.list(self._layout.checkpoint_prefix("archive"))]
        for key in keys:
            self._store.delete(key)
        return len(keys)

    def lose_manifest(self) -> Loss:
        """Delete a manifest whose offsets are in no other manifest, and which is not its writer's last."""
        found = self.manifests()
        last: dict[str, int] = {}
        for item in found.values():
            last[item.writer] = max(item.batch, last.get(item.writer, 0))
        for key, item in sorted(found.items()):
            held = _held({key: item})
            others = _held({other: value for other, value in found.items() if other != key})
            gaps = {partition: subtract(ranges, others.get(partition, ())) for partition, ranges in held.items()}
            if item.files and item.batch < last[item.writer] and gaps == held:
                self._store.delete(key)
                return Loss(key=key, gaps=gaps)
        raise StackError("no manifest has offsets of its own", found=f"{len(found)} manifests")


def _complete(manifests: Mapping[str, Manifest], ends: Mapping[int, int]) -> bool:
    held = _held(manifests)
    wanted = {partition: OffsetRange(start=0, end=end) for partition, end in ends.items() if end}
    return all(not subtract([span], held.get(partition, ())) for partition, span in wanted.items())


def _held(manifests: Mapping[str, Manifest]) -> dict[int, OffsetSet]:
    ranges: dict[int, list[OffsetRange]] = {}
    for manifest in manifests.values():
        for item in manifest.ranges:
            ranges.setdefault(item.log.partition, []).append(item.range)
    return {partition: normalise(items) for partition, items in ranges.items()}
