"""The report of each committed batch of the archive stream: a log line, and figures for its monitor."""

from statistics import median

from tidemark.archive.write.folders import in_overflow
from tidemark.archive.write.metrics import TaskMeter, TaskMetrics
from tidemark.core.layout import Layout
from tidemark.core.manifest import Manifest
from tidemark.s3 import ObjectStore
from tidemark.spark.monitor import BatchFigures, Monitor
from tidemark.spark.streaming import log_event


class BatchProgress:
    """Reports one stream's batches. Called on Spark's thread, after a batch's manifest is written."""

    def __init__(self, store: ObjectStore, layout: Layout, monitor: Monitor) -> None:
        self._layout, self._monitor = layout, monitor
        self._tasks: list[TaskMetrics] = []
        self._driver = TaskMeter()
        self._driver.listen(store.client)

    def task(self, metrics: TaskMetrics) -> None:
        """Add the metrics of one task of the current batch."""
        self._tasks.append(metrics)

    def batch(self, manifest: Manifest, *, seconds: float, repeated: bool) -> None:
        """Report a batch. ``repeated``: an earlier attempt committed it, so its records are not counted again."""
        tasks, self._tasks = self._tasks, []
        uploads = tuple(second for task in tasks for second in task.upload_seconds)
        records, size = sum(item.rows for item in manifest.ranges), sum(file.bytes for file in manifest.files)
        overflow = sum(file.rows for file in manifest.files if in_overflow(self._layout, file))
        outside = sum(file.out_of_bounds_rows for file in manifest.files)
        unreadable = sum(file.unreadable_times for file in manifest.files)
        figures = BatchFigures(
            batch=manifest.batch,
            ends={item.log.partition: item.range.end for item in manifest.ranges},
            seconds=seconds,
            records=0 if repeated else records,
            bytes=0 if repeated else size,
            files=0 if repeated else len(manifest.files),
            open_files=max((task.open_files for task in tasks), default=0),
            upload_seconds=uploads,
            retries=sum(task.retries for task in tasks) + self._driver.take().retries,
            overflow_rows=0 if repeated else overflow,
            out_of_bounds_rows=0 if repeated else outside,
            unreadable_times=0 if repeated else unreadable,
        )
        lag = self._monitor.batch(figures)
        log_event(
            "batch",
            layer="archive",
            stream=manifest.stream,
            batch=manifest.batch,
            records=records,
            bytes=size,
            files=len(manifest.files),
            offsets={str(item.log.partition): [item.range.start, item.range.end] for item in manifest.ranges},
            seconds=round(seconds, 3),
            open_files=figures.open_files,
            uploads=len(uploads),
            upload_ms_p50=_ms(median(uploads)) if uploads else None,
            upload_ms_max=_ms(max(uploads)) if uploads else None,
            retries=figures.retries,
            overflow_rows=overflow,
            out_of_bounds_rows=outside,
            unreadable_times=unreadable,
            lag=lag.records,
            lag_seconds=lag.seconds,
            repeated=repeated,
        )
        if overflow or outside:
            log_event(
                "bounds exceeded",
                level="warning",
                layer="archive",
                stream=manifest.stream,
                batch=manifest.batch,
                overflow_rows=overflow,
                out_of_bounds_rows=outside,
            )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
