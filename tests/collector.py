"""An OTLP/HTTP receiver, for what is exported by OpenTelemetry."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Collector:
    """A receiver: every request's path and metrics, in order."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ExportMetricsServiceRequest]] = []
        received = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received.append((self.path, ExportMetricsServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["Collector"]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def newest(self) -> dict[str, Any]:
        """Each metric as last received."""
        return {
            metric.name: metric
            for _, request in self.requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def attributes(point: Any) -> dict[str, str]:
    return {item.key: item.value.string_value for item in point.attributes}


class StepExport(NamedTuple):
    """What one attempt of a step exported: its values by metric, and the labels that all of them have."""

    step: str
    labels: dict[str, str]
    values: dict[str, float]


def step_exports(collector: Collector) -> list[StepExport]:
    """Every attempt's export, in order."""
    found = []
    for _, request in collector.requests:
        metrics = request.resource_metrics[0].scope_metrics[0].metrics
        points = {metric.name: point for metric in metrics for point in metric.gauge.data_points}
        assert len(points) == len(metrics)
        (labels,) = {tuple(sorted(attributes(point).items())) for point in points.values()}
        values = {name: point.as_int or point.as_double for name, point in points.items()}
        found.append(StepExport(step=dict(labels)["tidemark.step"], labels=dict(labels), values=values))
    return found
