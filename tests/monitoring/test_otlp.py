"""What streams and steps push, in a real Prometheus: its OTLP receiver makes the names of alerts and dashboard."""

import shutil
import subprocess

import pytest

import setup_prometheus
from tests.monitoring.conftest import Prometheus, StartPrometheus
from tests.monitoring.files import in_prometheus
from tests.waiting import wait_until
from tidemark.core.instruments import DAYS_SEALED, RECORDS, STEP_DURATION, STEP_FAILED, STREAM_INSTRUMENTS
from tidemark.telemetry.export import Telemetry
from tidemark.telemetry.steps import EXPORTS, export_step

pytestmark = pytest.mark.services

RECEIVER = "web.enable-otlp-receiver"


def has_receiver() -> bool:
    setup_prometheus.install()
    done = subprocess.run([str(shutil.which("prometheus")), "--help"], capture_output=True, text=True, check=False)
    return RECEIVER in done.stdout + done.stderr


def test_prometheus_gives_pushed_metrics_the_names_of_the_dashboard(
    start_prometheus: StartPrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_receiver():
        pytest.skip("the Prometheus on the PATH is Debian 12's, which has no OTLP receiver; release 3 has one")
    with start_prometheus({"otlp": {"translation_strategy": "UnderscoreEscapingWithSuffixes"}}, f"--{RECEIVER}") as it:
        server: Prometheus = it
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{server.url}/api/v1/otlp/v1/metrics")
        monkeypatch.setattr(EXPORTS, "paused_until", 0.0)
        warnings: list[str] = []
        stream = Telemetry(
            deployment="prod", stream="flights", layer="archive", warn=lambda *text: warnings.extend(text)
        )
        for item in STREAM_INSTRUMENTS:
            stream.record(item, 2)
        stream.close()
        for days in (3, 4):
            export_step(
                deployment="prod", stream="flights", step="seal", seconds=1.5, failed=False, figures={DAYS_SEALED: days}
            )
        assert warnings == []

        pushed = (*STREAM_INSTRUMENTS, STEP_DURATION, STEP_FAILED, DAYS_SEALED)
        names = set().union(*map(in_prometheus, pushed))
        wait_until(lambda: names <= set(server.ask("label/__name__/values")), "every metric is there")
        (records,) = server.query("tidemark_records_total")
        labels = {"tidemark_deployment": "prod", "tidemark_stream": "flights", "tidemark_layer": "archive"}
        assert labels.items() <= records["metric"].items()
        assert (RECORDS.kind, records["value"][1]) == ("counter", "2")
        # The attempts of a step are one series, whose values add up.
        wait_until(lambda: sealed(server) == [7.0], "both attempts are there")


def sealed(server: Prometheus) -> list[float]:
    return [float(item["value"][1]) for item in server.query("sum_over_time(tidemark_seal_days[1h])")]
