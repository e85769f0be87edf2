"""Debian's Prometheus, and promtool."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import setup_prometheus
from tidemark.stack.files import free_ports
from tidemark.stack.processes import Processes


@pytest.fixture(scope="session")
def promtool() -> str:
    setup_prometheus.install()
    return str(shutil.which("promtool"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A running server, by its API."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer; a refusal fails the test with its text."""
        body = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10).json()
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query, each with ``metric`` and ``value``."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """The labels of the alerts that fire, by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self.ask("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found


StartPrometheus = Callable[..., Any]


@pytest.fixture
def start_prometheus(tmp_path: Path) -> StartPrometheus:
    """A context manager that runs Prometheus with a configuration, every second."""

    @contextmanager
    def start(config: dict[str, Any], *arguments: str) -> Iterator[Prometheus]:
        setup_prometheus.install()
        (port,) = free_ports(1)
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        file = tmp_path / "prometheus.yml"
        file.write_text(yaml.safe_dump({"global": every, **config}), encoding="utf-8")
        server = Prometheus(url=f"http://127.0.0.1:{port}")
        processes = Processes()
        try:
            processes.start(
                "prometheus",
                [
                    str(shutil.which("prometheus")),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={tmp_path / 'prometheus'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    *arguments,
                ],
                env={},
                ready=lambda: _ready(server),
                timeout_s=60,
                log=tmp_path / "prometheus.log",
            )
            yield server
        finally:
            processes.stop(grace_s=5)

    return start


def _ready(server: Prometheus) -> bool:
    try:
        return httpx.get(f"{server.url}/-/ready", timeout=2).is_success
    except httpx.TransportError:
        return False
