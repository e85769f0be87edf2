"""Delete objects of replaced ranges once no run can need them, after a check that other objects hold their rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from tidemark.archive.ledger.history import History
from tidemark.archive.ledger.ledger import read_archived
from tidemark.archive.manifests import each_manifest
from tidemark.core.committed import Committed
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError
from tidemark.core.layout import Layout
from tidemark.core.maintenance_ages import DELETED_AFTER, KEPT_FOR, ReplacedState, replaced_object_state
from tidemark.core.manifest import COMPACTION, DataFile, Manifest, Replaced
from tidemark.core.offsets import OffsetRange, OffsetSet, TopicPartition, subtract
from tidemark.definitions.stream import Stream
from tidemark.maintenance.key_hashes import KeyHashes
from tidemark.objects.columns import checksum_of_rows
from tidemark.objects.footer import read_footer
from tidemark.s3 import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A replaced range whose objects are kept, and why."""

    log: TopicPartition
    range: OffsetRange
    writer: str
    batch: int
    why: str

    def __str__(self) -> str:
        return f"{self.log} {self.range}, batch {self.batch} of writer {self.writer}: {self.why}"


@dataclass(slots=True, kw_only=True)
class Deleted:
    """Objects of replaced ranges that were, or would be, deleted.

    ``waiting`` were replaced less than ``KEPT_FOR`` ago, or written less than ``DELETED_AFTER`` ago.
    """

    objects: int = 0
    bytes: int = 0
    waiting: int = 0
    kept: list[Kept] = field(default_factory=list)


def delete_replaced(
    store: ObjectStore,
    layout: Layout,
    stream: Stream,
    *,
    now: datetime,
    delete: bool,
    unfit: Mapping[str, str] = MappingProxyType({}),
    progress: Callable[[int], object] = lambda _: None,
) -> Deleted:
    """Delete the objects of ranges that a manifest older than ``KEPT_FOR`` replaces; or only count them.

    An object is deleted only if it is the version that was replaced, if it is older than ``DELETED_AFTER``, if no range
    in use lists it, and if complete ranges in use hold every offset of its range. The objects of those ranges are read,
    and must have the rows in their manifests. ``unfit`` names objects with known problems. Manifests stay. ``progress``
    is called with the number of objects so far.

    Raises what ``read_archived`` raises, and ServiceError if S3 refuses; objects deleted until then stay deleted.
    """
    before_us = micros(now - KEPT_FOR)
    found = Deleted()
    listed = _listed(store, layout)
    if not listed:
        return found
    check = _Check(
        store=store,
        listed=listed,
        written_before=now - DELETED_AFTER,
        history=read_archived(store, layout, stream).history(),
        seen=dict(unfit),
    )
    for manifest in _compactions(store, layout):
        for committed in manifest.ranges:
            of_log = [item for item in manifest.replaces if item.log == committed.log]
            present = {item: [file for file in item.files if file[0] in listed] for item in of_log}
            if not any(present.values()):
                continue
            if manifest.committed_at_us > before_us:
                found.waiting += sum(map(len, present.values()))
                continue
            in_use = check.history.overlapping(committed.log, committed.range)
            for item, files in present.items():
                for key in check.deletable(item, files, in_use, found):
                    if not delete or _delete(store, listed[key], check.written_before):
                        found.objects += 1
                        found.bytes += listed[key].size
                progress(found.objects)
    return found


def _state(found: ObjectInfo, etag: str, written_before: datetime) -> ReplacedState:
    return replaced_object_state(
        modified=found.modified, etag=found.etag, replaced_etag=etag, written_before=written_before
    )


def _delete(store: ObjectStore, listed: ObjectInfo, written_before: datetime) -> bool:
    """Delete the object as it was listed; False if another one has its key by now.

    Hours may have passed since the listing. The same rows written again may have the same ETag, but are younger.
    """
    now = store.find(listed.key)
    if now is None or _state(now, listed.etag, written_before) != "replaced":
        return False
    return store.delete_version(listed.key, listed.etag)


def _compactions(store: ObjectStore, layout: Layout) -> Iterator[Manifest]:
    return each_manifest(store, layout, f"{COMPACTION}/")


def _listed(store: ObjectStore, layout: Layout) -> dict[str, ObjectInfo]:
    """The existing replaced objects by key; an object with the same key hash may be among them."""
    replaced = KeyHashes.of(
        key for manifest in _compactions(store, layout) for item in manifest.replaces for key, *_ in item.files
    )
    return {item.key: item for item in store.list(layout.data_prefix) if item.key in replaced} if replaced else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """The archive in use, and the problems of its objects that were checked, by key.

    ``listed`` are the existing replaced objects; only those ``written_before`` a moment may be deleted.
    """

    store: ObjectStore
    listed: Mapping[str, ObjectInfo]
    written_before: datetime
    history: History
    seen: dict[str, str | None] = field(default_factory=dict)

    def deletable(
        self, item: Replaced, files: Sequence[tuple[str, str, str]], in_use: Sequence[Committed], found: Deleted
    ) -> list[str]:
        """The keys of a replaced range's objects that may be deleted; counts the others in ``found``."""
        states = {key: _state(self.listed[key], etag, self.written_before) for key, _, etag in files}
        found.waiting += sum(state == "young" for state in states.values())
        keys = [key for key, state in states.items() if state == "replaced"]
        changed = [key for key, state in states.items() if state == "rewritten"]
        if changed:
            why: str | None = f"{changed[0]} was written again since the compaction read it"
        else:
            why = self._needed(item, keys, in_use) if keys else None
        if why is None:
            return keys
        found.kept.append(Kept(log=item.log, range=item.range, writer=item.writer, batch=item.batch, why=why))
        return []

    def _needed(self, item: Replaced, keys: Sequence[str], in_use: Sequence[Committed]) -> str | None:
        """Why the objects of a replaced range must stay; None if they need not."""
        shared = {file.key for other in in_use for file in other.files}.intersection(keys)
        if shared:
            return f"a range in use lists {min(shared)}"
        wrong: list[str] = []
        left: OffsetSet = (item.range,)
        for other in in_use:
            if not left:  # further objects need not be read
                break
            if other.rows < len(other.range) or other.range.intersect(item.range) is None:
                continue
            problems = [problem for file in other.files if (problem := self._problem(file)) is not None]
            wrong += problems
            if not problems:
                left = subtract(left, [other.range])
        return None if not left else "; ".join([f"no complete range in use has {left[0]}", *wrong])

    def _problem(self, file: DataFile) -> str | None:
        if file.key not in self.seen:
            self.seen[file.key] = self._compared(file)
        return self.seen[file.key]

    def _compared(self, file: DataFile) -> str | None:
        """The problem of an object, None if its size, footer and rows match the manifest."""
        try:
            stored = read_footer(self.store, file.key)
        except ConflictError as error:
            return str(error)
        if stored is None:
            return f"{file.key} is missing"
        if (stored.bytes, stored.footer.checksum) != (file.bytes, file.checksum):
            return f"{file.key} has {stored.bytes} bytes, {stored.footer}, unlike its manifest"
        found = checksum_of_rows(self.store, file.key)
        if found != file.checksum:
            return f"{file.key} does not hold the rows in its manifest, of checksum {file.checksum}: {found}"
        return None
