"""From Airflow's task context to the request of a run, and from Tidemark's errors to Airflow's."""

from collections.abc import Callable
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from tidemark.core.errors import ApprovalError, ConfigError, QualityError, RequestError, TidemarkError
from tidemark.orchestration.run_days import run_days
from tidemark.orchestration.tasks import Request

T = TypeVar("T")


def request(stream_name: str, context: Any) -> Request:
    """What the run is asked for. Raises RequestError where the run's form is wrong, ConfigError where its definition
    is."""
    from tidemark.definitions.stream import load_stream
    from tidemark.settings import streams_dir

    stream = load_stream(stream_name, streams_dir())
    # A run triggered without a logical date has no data interval: the keys are absent.
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    params = context["params"]
    days = run_days(
        from_day=params["from_day"],
        to_day=params["to_day"],
        interval=(start, end) if start and end else None,
        zone=stream.zone,
    )
    by_schedule = context["dag_run"].run_type == "scheduled" and not params["from_day"]
    return Request(
        days=days,
        force=params["force"],
        scheduled=by_schedule,
        by=context["dag_run"].triggering_user_name or "unknown",
        accept_loss=params["accept_loss"],
        reassign_days=params["reassign_days"],
    )


def explained(action: Callable[[], T], *final: type[TidemarkError]) -> T:
    """The action's result. A retry can't fix a wrong setting, definition or form, nor rows that failed their checks
    or that a person did not approve: these errors, and the ``final`` ones, fail the task for good.

    The log has the error once: with its own traceback, and without the error that Airflow's one stands for.
    """
    pointless: tuple[type[TidemarkError], ...] = (ConfigError, RequestError, QualityError, ApprovalError, *final)
    try:
        return action()
    except pointless as error:
        raise AirflowFailException(str(error)).with_traceback(error.__traceback__) from None
