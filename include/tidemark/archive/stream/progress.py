"""What the archive stream tells about each batch it committed: a log line, and figures for its monitor."""

from statistics import median

from tidemark.archive.write.metrics import TaskMeter, TaskMetrics
from tidemark.core.manifest import Manifest
from tidemark.s3 import ObjectStore
from tidemark.spark.monitor import BatchFigures, Monitor
from tidemark.spark.streaming import log_event


class Progress:
    """One stream's account of its batches. Called on Spark's thread, after a batch's manifest is there."""

    def __init__(self, store: ObjectStore, monitor: Monitor) -> None:
        self._monitor = monitor
        self._tasks: list[TaskMetrics] = []
        self._driver = TaskMeter()
        self._driver.listen(store.client)

    def task(self, metrics: TaskMetrics) -> None:
        """Take in one task of the batch in hand."""
        self._tasks.append(metrics)

    def batch(self, manifest: Manifest, *, seconds: float, again: bool) -> None:
        """Tell of a batch; ``again`` where an earlier attempt had committed it, which then counts no records twice."""
        tasks, self._tasks = self._tasks, []
        uploads = tuple(second for task in tasks for second in task.upload_seconds)
        records, size = sum(item.rows for item in manifest.ranges), sum(file.bytes for file in manifest.files)
        figures = BatchFigures(
            batch=manifest.batch,
            ends={item.log.partition: item.range.end for item in manifest.ranges},
            seconds=seconds,
            records=0 if again else records,
            bytes=0 if again else size,
            files=0 if again else len(manifest.files),
            open_files=max((task.open_files for task in tasks), default=0),
            upload_seconds=uploads,
            retries=sum(task.retries for task in tasks) + self._driver.take().retries,
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
            lag=lag.records,
            lag_seconds=lag.seconds,
            again=again,
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
