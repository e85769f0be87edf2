"""The lines of a task's log that are for people: what its step is about to do, and what it did."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from tidemark.core.text import error_text
from tidemark.orchestration.step_log import begin_text, end_lines

if TYPE_CHECKING:
    from tidemark.run import Run


def log_begin(log: Any, step: str, run: "Run") -> None:
    """What the step is about to do."""
    _write(log, lambda: [begin_text(step, run)])


def log_end(log: Any, step: str, run: "Run") -> None:
    """What the step did, as it has saved it."""
    _write(log, lambda: end_lines(step, run))


def log_skip(log: Any, because: str) -> AirflowSkipException:
    """Why there is nothing to do, as a line of its own: Airflow folds its own line about it away."""
    log.info("Skipped: %s", because)
    return AirflowSkipException(because)


def _write(log: Any, lines: Callable[[], Iterable[str]]) -> None:
    try:
        for line in lines():
            log.info("%s", line)
    except Exception as error:  # noqa: BLE001 - the step must not fail, nor lose its own error, for its log
        log.warning("This log is incomplete: %s", error_text(error))
