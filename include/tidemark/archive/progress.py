"""What the archive stream tells about each batch it committed."""

from tidemark.core.errors import ServiceError
from tidemark.core.manifest import Manifest
from tidemark.kafka import watermarks
from tidemark.settings import Settings
from tidemark.spark.streaming import log_event


class Progress:
    """One stream's account of itself. Called on Spark's thread, once per batch, after its manifest is there."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def batch(self, manifest: Manifest, *, seconds: float, again: bool) -> None:
        """Tell of a batch; ``again`` where an earlier attempt had committed it."""
        log_event(
            "batch",
            layer="archive",
            stream=manifest.stream,
            batch=manifest.batch,
            records=sum(item.rows for item in manifest.ranges),
            bytes=sum(file.bytes for file in manifest.files),
            files=len(manifest.files),
            offsets={str(item.log.partition): [item.range.start, item.range.end] for item in manifest.ranges},
            seconds=round(seconds, 3),
            lag=self._lag(manifest),
            again=again,
        )

    def _lag(self, manifest: Manifest) -> int | None:
        """Records behind the batch, in its partitions; None where Kafka does not tell, which must not fail a batch."""
        ends = {item.log: item.range.end for item in manifest.ranges}
        try:
            marks = watermarks(self._settings.kafka_bootstrap, tuple(ends))
        except ServiceError:
            return None
        return sum(max(mark.high_watermark - ends[mark.log], 0) for mark in marks)
