"""The watch's state in a Variable of Airflow: so an outage of S3 is announced once, too, and not at each check."""

from logging import getLogger

from airflow.sdk import Variable

from tidemark.core.errors import FormatError
from tidemark.inspect.watch import WatchState, parse_state

VARIABLE = "tidemark_watch"
_DESCRIPTION = "What tidemark_watch has found and announced. Without it, the next check announces every open problem."
_LOG = getLogger(__name__)


def read_state() -> WatchState:
    """The state that the last check saved. The log shows one that does not parse; it counts as none."""
    try:
        return parse_state(Variable.get(VARIABLE, default=None), where=f"Airflow variable {VARIABLE}")
    except FormatError as error:
        _LOG.error("%s. The watch continues with an empty state: this check announces every open problem again.", error)
        return WatchState()


def save_state(state: WatchState) -> None:
    """Save the state for the next task or check. Airflow writes it in one transaction."""
    Variable.set(VARIABLE, state.to_json(), description=_DESCRIPTION)
