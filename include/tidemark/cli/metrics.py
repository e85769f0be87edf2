"""``tidemark metrics``: the status of streams in Prometheus' format, once or over HTTP."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Event, Lock

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidemark.cli.connect import connect
from tidemark.cli.output import open_console
from tidemark.core.errors import RequestError
from tidemark.definitions.stream import stream_names
from tidemark.inspect.status import read_status
from tidemark.inspect.status_metrics import STATUS_METRICS, Sample, status_samples
from tidemark.settings import Settings

FRESH_S = 5.0
WAIT_S = 8.0  # Prometheus gives up a scrape after 10 s by default
Samples = tuple[Sample, ...]


def print_metrics(
    stack: str | None, stream: str | None, *, serve: str | None, stale_seconds: float, grace_hours: float
) -> None:
    """Print the metrics, or serve them until a stop signal. Raises ConfigError where there is no such stream."""
    settings = connect(stack)
    reader = StatusReader(settings, stream, stale_seconds=stale_seconds, grace=timedelta(hours=grace_hours))
    if serve is None:
        sys.stdout.write(exposition(reader.read()))
        return
    host, port = parse_address(serve)
    registry = CollectorRegistry()
    cache = Cache(reader.read, fresh_s=FRESH_S, wait_s=WAIT_S)
    registry.register(StatusCollector(cache.get))
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise RequestError("cannot serve metrics", expected="a free port", found=error, where=serve) from error
    open_console().print(f"Metrics: http://{host}:{server.server_port}/metrics", highlight=False)
    stop.wait()
    server.shutdown()


def parse_address(text: str) -> tuple[str, int]:
    """``HOST:PORT``; a host of IPv6 stands in brackets. Raises RequestError for other texts."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isdecimal() and int(port) < 65536):
        raise RequestError("not an address to serve on", expected="HOST:PORT, such as 0.0.0.0:9464", found=text)
    return host, int(port)


def exposition(samples: Samples) -> str:
    """The samples in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: samples))
    return generate_latest(registry).decode()


class StatusReader:
    """Reads the status of a stream, or of every stream that has a definition at that time."""

    def __init__(self, settings: Settings, stream: str | None, *, stale_seconds: float, grace: timedelta) -> None:
        self._settings, self._stream = settings, stream
        self._stale_seconds, self._grace = stale_seconds, grace

    def read(self) -> Samples:
        """Raises ConfigError where there is no such stream."""
        now, began = datetime.now(UTC), time.monotonic()
        names: Sequence[str] = stream_names(self._settings.streams_dir)
        if self._stream is not None:
            names = [self._stream]
        found = read_status(self._settings, names, now=now, stale_seconds=self._stale_seconds, grace=self._grace)
        return tuple(status_samples(self._settings, found, now=now, seconds=time.monotonic() - began))


class Cache:
    """The newest answer of a slow question, which one thread at a time asks.

    An answer serves for ``fresh_s``. A later caller waits for a new one, ``wait_s`` at most, and then gets the last
    one. Its own timestamp shows that it is old.
    """

    def __init__(self, read: Callable[[], Samples], *, fresh_s: float, wait_s: float) -> None:
        self._read, self._fresh_s, self._wait_s = read, fresh_s, wait_s
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="status")
        self._lock = Lock()
        self._last: Samples | None = None
        self._fresh_until = 0.0
        self._asked: Future[Samples] | None = None

    def get(self) -> Samples:
        """Raises what the question raises, and TimeoutError while the first answer takes too long."""
        with self._lock:
            if self._last is not None and time.monotonic() < self._fresh_until:
                return self._last
            if self._asked is None:
                self._asked = self._pool.submit(self._ask)
            asked = self._asked
        try:
            return asked.result(timeout=self._wait_s)
        except TimeoutError:
            if self._last is None:
                raise
            return self._last

    def _ask(self) -> Samples:
        try:
            found = self._read()
            with self._lock:
                self._last, self._fresh_until = found, time.monotonic() + self._fresh_s
            return found
        finally:
            with self._lock:
                self._asked = None


class StatusCollector(Collector):
    """Gives the samples to Prometheus' library, with every metric's help, also of metrics without a value."""

    def __init__(self, samples: Callable[[], Samples]) -> None:
        self._samples = samples

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Without this, registering would read the status."""
        yield from self._families()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every metric with its values."""
        families = {family.name: family for family in self._families()}
        for sample in self._samples():
            families[sample.metric.name].add_metric(sample.labels, sample.value)
        yield from families.values()

    def _families(self) -> Iterator[GaugeMetricFamily]:
        for item in STATUS_METRICS:
            yield GaugeMetricFamily(item.name, f"{item.about.replace('`', '')}.", labels=item.labels)
