"""A stream's metrics by OpenTelemetry, over OTLP/HTTP, if the standard variables name a collector.

Their own thread exports them: an unavailable collector neither stops nor slows the stream.
"""

import logging
import os
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from tidemark.spark.streaming import log_event

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ATTRIBUTES = ("tidemark.stream", "tidemark.layer")
_LAST_EXPORT_MS = 5_000


class Instrument(NamedTuple):
    """One metric; name and unit (UCUM) follow OpenTelemetry's conventions."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    about: str


BATCHES = Instrument("tidemark.batches", "counter", "{batch}", "Batches committed")
RECORDS = Instrument("tidemark.records", "counter", "{record}", "Records committed")
DEAD_LETTERS = Instrument("tidemark.dead_letters", "counter", "{record}", "Records sent to the dead-letter topic")
IO = Instrument("tidemark.io", "counter", "By", "Bytes of the data objects committed")
FILES = Instrument("tidemark.files", "counter", "{file}", "Data objects committed")
OPEN_FILES = Instrument("tidemark.open_files", "gauge", "{file}", "Most files one task of the batch had open at once")
BATCH_DURATION = Instrument("tidemark.batch.duration", "histogram", "s", "Time per batch")
UPLOAD_DURATION = Instrument(
    "tidemark.s3.upload.duration", "histogram", "s", "Time per uploading call, retries included"
)
RETRIES = Instrument("tidemark.s3.retries", "counter", "{retry}", "S3 requests repeated")
OVERFLOW_ROWS = Instrument(
    "tidemark.overflow.records", "counter", "{record}", "Records in the overflow folder, beyond `archive.max_folders`"
)
OUT_OF_BOUNDS_ROWS = Instrument(
    "tidemark.out_of_bounds.records",
    "counter",
    "{record}",
    "Records whose time field lay beyond `event_time.max_distance_days`",
)
LAG_RECORDS = Instrument(
    "tidemark.lag.records", "gauge", "{record}", "Offsets between the position and the topic's end"
)
LAG_TIME = Instrument("tidemark.lag.time", "gauge", "s", "Age of the oldest unread record, 0 without one")
_BATCH_INSTRUMENTS = (
    BATCHES,
    RECORDS,
    DEAD_LETTERS,
    IO,
    FILES,
    OPEN_FILES,
    BATCH_DURATION,
    UPLOAD_DURATION,
    RETRIES,
    OVERFLOW_ROWS,
    OUT_OF_BOUNDS_ROWS,
)
INSTRUMENTS = (*_BATCH_INSTRUMENTS, LAG_RECORDS, LAG_TIME)


class Telemetry:
    """One stream's metrics, from construction to ``close``. Thread-safe."""

    def __init__(self, *, stream: str, layer: str) -> None:
        self._attributes = dict(zip(ATTRIBUTES, (stream, layer), strict=True))
        self._provider: Any = None
        self._writers: dict[Instrument, Any] = {}
        endpoint = next((value for name in ENDPOINTS if (value := os.environ.get(name))), None)
        place = urlsplit(endpoint or "").netloc.rpartition("@")[2]  # a URL may contain a password
        self._complaints = _FirstComplaint(layer=layer, stream=stream, collector=place)
        if endpoint is not None:
            self._start()

    def record(self, instrument: Instrument, value: float) -> None:
        """Add to a counter, observe in a histogram, set a gauge."""
        if (write := self._writers.get(instrument)) is not None:
            write(value, self._attributes)

    def close(self) -> None:
        """Export the last values; takes 5 s at most."""
        if self._provider is None:
            return
        try:
            self._provider.shutdown(timeout_millis=_LAST_EXPORT_MS)
        except Exception as error:  # noqa: BLE001  # it raises nothing narrower, and must not fail a successful run
            log_event("metrics not exported", level="warning", **self._attributes, error=repr(error))
        self._complaints.stop()
        self._provider = None

    def _start(self) -> None:
        # These imports take half a second, and only a deployment with a collector needs them.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        self._complaints.start()
        resource = Resource.create()
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "tidemark"}))
        self._provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
        meter = self._provider.get_meter("tidemark")
        make = {"counter": meter.create_counter, "histogram": meter.create_histogram, "gauge": meter.create_gauge}
        method = {"counter": "add", "histogram": "record", "gauge": "set"}
        for item in INSTRUMENTS:
            made: Any = make[item.kind](item.name, unit=item.unit, description=item.about)
            self._writers[item] = getattr(made, method[item.kind])


class _FirstComplaint(logging.Handler):
    """Logs only the first failed export of a run; OpenTelemetry logs every one while the collector is unavailable."""

    def __init__(self, **fields: str) -> None:
        super().__init__(logging.WARNING)
        self._fields = fields
        self._made = False

    def start(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def stop(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.removeHandler(self)
        logger.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        if not self._made:  # only one thread at a time is in a handler
            self._made = True
            log_event("metrics not exported", level="warning", **self._fields, error=record.getMessage())
