"""A stream's metrics by OpenTelemetry, over OTLP/HTTP, if the standard variables name a collector.

Their own thread exports them: an unavailable collector neither stops nor slows the stream.
"""

import logging
import os
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal
from urllib.parse import urlsplit

from tidemark.spark.streaming import log_event

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
ATTRIBUTES = ("tidemark.stream", "tidemark.layer")
_LAST_EXPORT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric; name and unit (UCUM) follow OpenTelemetry's conventions."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    about: str


BATCHES = Instrument(name="tidemark.batches", kind="counter", unit="{batch}", about="Batches committed")
RECORDS = Instrument(name="tidemark.records", kind="counter", unit="{record}", about="Records committed")
DEAD_LETTERS = Instrument(
    name="tidemark.dead_letters", kind="counter", unit="{record}", about="Records sent to the dead-letter topic"
)
IO = Instrument(name="tidemark.io", kind="counter", unit="By", about="Bytes of the data objects committed")
FILES = Instrument(name="tidemark.files", kind="counter", unit="{file}", about="Data objects committed")
OPEN_FILES = Instrument(
    name="tidemark.open_files", kind="gauge", unit="{file}", about="Most files one task of the batch had open at once"
)
BATCH_DURATION = Instrument(name="tidemark.batch.duration", kind="histogram", unit="s", about="Time per batch")
UPLOAD_DURATION = Instrument(
    name="tidemark.s3.upload.duration", kind="histogram", unit="s", about="Time per uploading call, retries included"
)
RETRIES = Instrument(name="tidemark.s3.retries", kind="counter", unit="{retry}", about="S3 requests repeated")
LAG_RECORDS = Instrument(
    name="tidemark.lag.records", kind="gauge", unit="{record}", about="Offsets between the position and the topic's end"
)
LAG_TIME = Instrument(
    name="tidemark.lag.time", kind="gauge", unit="s", about="Age of the oldest unread record, 0 without one"
)
INSTRUMENTS = (
    BATCHES,
    RECORDS,
    DEAD_LETTERS,
    IO,
    FILES,
    OPEN_FILES,
    BATCH_DURATION,
    UPLOAD_DURATION,
    RETRIES,
    LAG_RECORDS,
    LAG_TIME,
)


class Telemetry:
    """One stream's metrics, from construction to ``close``. Thread-safe."""

    def __init__(self, *, stream: str, layer: str) -> None:
        self._attributes = dict(zip(ATTRIBUTES, (stream, layer), strict=True))
        self._provider: Any = None
        self._instruments: dict[str, Any] = {}
        endpoint = next((value for name in ENDPOINTS if (value := os.environ.get(name))), None)
        self._complaints = _FirstComplaint(layer=layer, stream=stream, collector=_place(endpoint or ""))
        if endpoint is not None:
            self._start()

    def record(self, instrument: Instrument, value: float) -> None:
        """Add to a counter, observe in a histogram, set a gauge."""
        target = self._instruments.get(instrument.name)
        if target is None:
            return
        match instrument.kind:
            case "counter":
                target.add(value, self._attributes)
            case "histogram":
                target.record(value, self._attributes)
            case "gauge":
                target.set(value, self._attributes)

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
        self._instruments = {
            item.name: make[item.kind](item.name, unit=item.unit, description=item.about) for item in INSTRUMENTS
        }


def _place(url: str) -> str:
    """Host and port only: a URL may contain a password."""
    return urlsplit(url).netloc.rpartition("@")[2]


class _FirstComplaint(logging.Handler):
    """Logs only the first failed export of a run; OpenTelemetry logs every one while the collector is unavailable."""

    def __init__(self, **fields: str) -> None:
        super().__init__(logging.WARNING)
        self._fields = fields
        self._lock = Lock()
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
        with self._lock:
            first, self._made = not self._made, True
        if first:
            log_event("metrics not exported", level="warning", **self._fields, error=record.getMessage())
