"""A stream's metrics by OpenTelemetry, over OTLP/HTTP, if the standard variables name a collector.

A thread of its own exports them: an unavailable collector neither stops nor slows the stream.
"""

import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, Self
from urllib.parse import urlsplit

from tidemark.core.instruments import STREAM_ATTRIBUTES, STREAM_INSTRUMENTS, Instrument
from tidemark.core.masking import MASK, masked_addresses

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_LAST_EXPORT_MS = 5_000
_INSTANCE = "service.instance.id"

# Gets the error and the collector's host and port, at most once.
Warn = Callable[[str, str], object]


class Telemetry:
    """One stream's metrics, from construction to ``close``. Thread-safe.

    ``warn`` is called when the first export fails.
    """

    def __init__(self, *, deployment: str, stream: str, layer: str, warn: Warn) -> None:
        self._attributes = dict(zip(STREAM_ATTRIBUTES, (deployment, stream, layer), strict=True))
        self._provider: Any = None
        self._writers: dict[Instrument, Any] = {}
        self._complaints = FirstComplaint(warn)
        if is_on():
            try:
                self._start()
            except ImportError as error:
                self._complaints.make(missing_package(error))

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
            self._complaints.make(repr(error))
        self._complaints.__exit__()
        self._provider = None

    def _start(self) -> None:
        # These imports take half a second, and only a deployment with a collector needs them.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        self._complaints.__enter__()
        self._provider = open_provider(PeriodicExportingMetricReader(OTLPMetricExporter()))
        self._writers = make_writers(self._provider, STREAM_INSTRUMENTS)


def is_on() -> bool:
    """Whether a standard variable names a collector."""
    return any(os.environ.get(name) for name in ENDPOINTS)


def missing_package(error: ImportError) -> str:
    """What to say where OpenTelemetry is not installed."""
    return f"{error}; install tidemark[otel]"


def open_provider(reader: Any, *, instance: str | None = None) -> Any:
    """OpenTelemetry's provider, with the resource of the standard variables.

    ``instance`` replaces the random ``service.instance.id``, unless a variable sets that.
    """
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "tidemark"}))
    if instance is not None and _INSTANCE not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        resource = resource.merge(Resource({_INSTANCE: instance}))
    return MeterProvider([reader], resource=resource)


def make_writers(provider: Any, instruments: Iterable[Instrument]) -> dict[Instrument, Any]:
    """For each instrument the method that takes a value and attributes."""
    meter = provider.get_meter("tidemark")
    make = {"counter": meter.create_counter, "histogram": meter.create_histogram, "gauge": meter.create_gauge}
    method = {"counter": "add", "histogram": "record", "gauge": "set"}
    return {
        item: getattr(make[item.kind](item.name, unit=item.unit, description=item.about), method[item.kind])
        for item in instruments
    }


def _host(endpoint: str) -> str:
    """Host and port of a URL, without a login; the mask if a password's characters leave that part in doubt."""
    found = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").netloc
    if endpoint.count("@") > found.count("@") or found.count("@") > 1:
        return MASK
    return found.rpartition("@")[2]


class FirstComplaint(logging.Handler):
    """While entered, passes OpenTelemetry's first warning on, and no other; it logs every failed export."""

    def __init__(self, warn: Warn) -> None:
        super().__init__(logging.WARNING)
        self._warn = warn
        self.made = False

    def make(self, error: str) -> None:
        if not self.made:  # only one thread at a time is in a handler
            self.made = True
            endpoint = next((value for name in ENDPOINTS if (value := os.environ.get(name))), "")
            self._warn(masked_addresses(error), _host(endpoint))

    def emit(self, record: logging.LogRecord) -> None:
        self.make(record.getMessage())

    def __enter__(self) -> Self:
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.removeHandler(self)
        logger.propagate = True
