"""The metrics of a step, which its process exports once, when it has ended.

One attempt exports one value of each metric. All attempts share a ``service.instance.id``, because a random one would
give each attempt series of its own. Sharing is safe: a stream has one reconcile run at a time.
"""

import logging
import time
from collections.abc import Mapping

from tidemark.core.instruments import STEP_ATTRIBUTES, STEP_DURATION, STEP_FAILED, Figures
from tidemark.telemetry.export import FirstComplaint, is_on, make_writers, missing_package, open_provider

TIMEOUT_S = 2
PAUSE_S = 300
_INSTANCE = "steps"
_log = logging.getLogger("tidemark")


class _Exports:
    """The exports of this process. After a failed one, exports pause for some minutes, so that a run is not slowed."""

    def __init__(self) -> None:
        self.paused_until = 0.0

    def export(self, attributes: Mapping[str, str], figures: Figures) -> None:
        if not is_on() or time.monotonic() < self.paused_until:
            return
        complaints = FirstComplaint(
            lambda error, place: _log.warning(
                "metrics of step %s not exported to %s: %s", attributes[STEP_ATTRIBUTES[-1]], place, error
            )
        )
        with complaints:
            try:
                _send(attributes, figures)
            except ImportError as error:
                complaints.make(missing_package(error))
            except Exception as error:  # noqa: BLE001  # it raises nothing narrower, and must not fail the step
                complaints.make(repr(error))
        if complaints.made:
            self.paused_until = time.monotonic() + PAUSE_S


EXPORTS = _Exports()


def export_step(
    *, deployment: str, stream: str, step: str, seconds: float, failed: bool, figures: Figures | None = None
) -> None:
    """Export how a step ended, if a standard variable names a collector. Raises nothing, and takes 2 s at most.

    If that fails, a warning is logged, and this process exports no step for five minutes.
    """
    attributes = dict(zip(STEP_ATTRIBUTES, (deployment, stream, step), strict=True))
    EXPORTS.export(attributes, {STEP_DURATION: seconds, STEP_FAILED: float(failed), **(figures or {})})


def _send(attributes: Mapping[str, str], figures: Figures) -> None:
    # These imports take half a second, and only a deployment with a collector needs them.
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=TIMEOUT_S), export_interval_millis=float("inf"))
    provider = open_provider(reader, instance=_INSTANCE)
    for item, write in make_writers(provider, figures).items():
        write(figures[item], attributes)
    provider.force_flush(timeout_millis=TIMEOUT_S * 1000)
    provider.shutdown()
