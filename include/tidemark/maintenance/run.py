"""The maintenance of a stream: one sequence of steps, which the command and the DAG share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from tidemark.core.instruments import FILES_COMPACTED, OBJECTS_DELETED, Figures
from tidemark.core.layout import Layout
from tidemark.core.outcome import RunStep
from tidemark.definitions.stream import Stream
from tidemark.maintenance.archive import Compacted, Maintained, maintain, maintain_ledger
from tidemark.maintenance.compaction import CompactedFiles, Compaction
from tidemark.maintenance.replaced import Deleted, delete_replaced
from tidemark.maintenance.tables import TableMaintenance, has_tables, maintain_history, maintain_tables
from tidemark.run import Run
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings


def _figures(result: dict[str, Any]) -> Figures:
    if "compacted" not in result:  # an earlier part failed
        return {}
    return {FILES_COMPACTED: result["compacted"]["files"], OBJECTS_DELETED: result["replaced"]["deleted"]}


MAINTAIN = RunStep("maintain", dict[str, Any], _figures)
OpenSpark = Callable[[], AbstractContextManager[SparkSession]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedFiles:
    """The outcome, or the preview, of compacting small files and deleting replaced objects."""

    compacted: CompactedFiles
    replaced: Deleted


Step = Maintained | tuple[TableMaintenance, ...] | Compacted | MaintainedFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """One maintenance of one stream.

    Without ``clean_tables`` or ``compact``, those steps only find what they would do. ``now`` has a zone.
    """

    settings: Settings
    stream: Stream
    now: datetime
    older_than: timedelta
    open_spark: OpenSpark
    clean_tables: bool
    compact: bool
    rebuild_ledger: bool = False
    show_progress: Callable[[str], object] = lambda _text: None

    def steps(self) -> Iterator[Step]:
        """Do one step after the other, and yield what each one found or did.

        In this order: uploads and orphans, the tables, the ledger, the files. What does not need the ledger comes
        before it, because an error of the ledger ends the sequence. Raises what ``maintain``, ``maintain_tables``,
        ``maintain_ledger``, ``Compaction.run``, ``delete_replaced`` and ``CompactedFiles.require_fit`` raise.
        """
        store, layout = ObjectStore(self.settings), Layout(prefix=self.settings.prefix, stream=self.stream.name)
        counter = _ProgressNumber(self.show_progress, "manifests read: {:,}")
        yield maintain(store, layout, before=self.now - self.older_than, progress=counter.set)
        if has_tables(self.settings, self.stream):
            with self.open_spark() as spark:
                self.show_progress("maintaining the tables")
                own = maintain_tables(spark, self.settings, self.stream, now=self.now, delete=self.clean_tables)
                shared = maintain_history(spark, self.settings, now=self.now, delete=self.clean_tables)
            yield (*own, *shared)
        counter = _ProgressNumber(self.show_progress, f"manifests read: {{:,}} of {counter.value:,}")
        yield maintain_ledger(store, layout, self.stream, from_scratch=self.rebuild_ledger, progress=counter.set)
        files = self._files(store, layout)
        yield files
        files.compacted.require_fit()

    def _files(self, store: ObjectStore, layout: Layout) -> MaintainedFiles:
        compaction = Compaction(
            store=store,
            layout=layout,
            stream=self.stream,
            now=self.now,
            progress=_ProgressNumber(self.show_progress, "compacting: {:,} bytes read").add,
            checked=_ProgressNumber(self.show_progress, "small ranges checked: {:,}").set,
        )
        compacted = compaction.run() if self.compact else compaction.preview()
        # After the compaction, because this step reads the objects that took the place of the replaced ones.
        replaced = delete_replaced(
            store,
            layout,
            self.stream,
            now=self.now,
            delete=self.compact,
            unfit=compacted.unfit,
            progress=_ProgressNumber(self.show_progress, "replaced objects that nobody needs: {:,}").set,
        )
        return MaintainedFiles(compacted=compacted, replaced=replaced)


@dataclass(slots=True)
class _ProgressNumber:
    """Shows a number in a line of text."""

    show: Callable[[str], object]
    text: str
    value: int = 0

    def set(self, value: int) -> None:
        self.value = value
        self.show(self.text.format(value))

    def add(self, more: int) -> None:
        self.set(self.value + more)


def maintain_run(run: Run, spark: SparkSession) -> None:
    """Do every maintenance step of the run's stream, and save the results as maintain.json. Raises as ``steps``."""
    maintenance = Maintenance(
        settings=run.settings,
        stream=run.stream,
        now=datetime.now(UTC),
        older_than=timedelta(days=1),
        open_spark=lambda: nullcontext(spark),
        clean_tables=True,
        compact=True,
    )
    with run.step(MAINTAIN) as attempt:
        out: dict[str, Any] = {"tables": {}}
        attempt.result = out
        for step in maintenance.steps():
            out.update(_values(step))


def _values(step: Step) -> dict[str, Any]:
    match step:
        case Maintained():
            return {
                "uploads_aborted": [item.key for item in step.aborted],
                "objects_unlisted": [item.key for item in step.orphans],
            }
        case Compacted():
            return {"ledger": {"manifests": step.manifests, "new": step.new, "segments": step.segments}}
        case MaintainedFiles():
            deleted = step.replaced
            return {
                "compacted": asdict(step.compacted),
                "replaced": {
                    "deleted": deleted.objects,
                    "bytes": deleted.bytes,
                    "waiting": deleted.waiting,
                    "kept": list(map(str, deleted.kept)),
                },
            }
        case tables:
            return {"tables": {item.name: _table_values(item) for item in tables}}


def _table_values(item: TableMaintenance) -> dict[str, Any]:
    return {
        "branches_dropped": sorted(item.expiry.branches),
        "snapshots_expired": len(item.expiry.snapshots),
        "snapshots_kept": item.expiry.kept,
        "kept_for_unsealed": [f"{day}, published by run {name}" for day, name in item.expiry.unsealed],
        "files_deleted": item.deleted,
        "orphans_deleted": list(item.orphans),
        "uploads_aborted": [upload.key for upload in item.uploads],
    }
