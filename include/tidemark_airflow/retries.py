"""Which failed tasks Airflow tries again, and when: the kind of the error decides."""

from datetime import timedelta
from typing import Any

from airflow.sdk import RetryDecision, RetryPolicy

from tidemark.core.errors import (
    ApprovalError,
    ConfigError,
    IncompleteError,
    QualityError,
    RequestError,
    ServiceError,
    TransformError,
)
from tidemark.orchestration.steps import RETRIES, RETRY_DELAY

# A retry can't fix a setting, a form, rows that failed their checks, or offsets that are missing.
FOR_A_PERSON = (ApprovalError, ConfigError, IncompleteError, QualityError, RequestError, TransformError)
PAUSE_MAX = timedelta(hours=1)
OTHER_RETRIES = 2


class RetryByKind(RetryPolicy):
    """Errors for a person are not retried, those of services with growing pauses, all others twice.

    A task whose process was killed has no error: Airflow retries it after the task's ``retry_delay``.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,
        context: Any = None,  # noqa: ARG002 - Airflow gives it
    ) -> RetryDecision:
        """The decision after a failed try. A task that a person has cleared starts from its first try again."""
        kind = type(exception).__name__
        if isinstance(exception, FOR_A_PERSON):
            return RetryDecision.fail(f"{kind} needs a person")
        tries = try_number - (max_tries - RETRIES)
        if isinstance(exception, ServiceError):
            pause = min(RETRY_DELAY * 4 ** max(tries - 1, 0), PAUSE_MAX)
            return RetryDecision.retry(pause, f"{kind}: the service may answer in {pause}")
        if tries > OTHER_RETRIES:
            return RetryDecision.fail(f"{kind} after {tries} tries")
        return RetryDecision.default()


# For a DAG's ``default_args``.
RETRY_ARGS = {"retries": RETRIES, "retry_delay": RETRY_DELAY, "retry_policy": RetryByKind()}
