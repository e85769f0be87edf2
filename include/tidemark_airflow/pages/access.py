"""Who may see what and do what: Airflow's login, and its rights to the DAG ``reconcile_<stream>``."""

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, HTTPException, Path, Request

from tidemark.definitions.stream import stream_names
from tidemark.orchestration.steps import dag_id
from tidemark.settings import streams_dir

User = Annotated[BaseUser, Depends(get_user)]
_PREFIX = dag_id("")
# Every day has one before and one after it.
YEARS = range(1970, 9999)


def readable_dag(request: Request, user: User, dag: Annotated[str, Path()]) -> str:
    """The DAG of the path, if the user may read it. Raises HTTPException 403 otherwise."""
    _require(request, user, dag, "GET")
    return dag


def readable_stream(request: Request, user: User, stream: Annotated[str, Path()]) -> str:
    """The stream of the path, if the user may read its DAG. Raises HTTPException 403 if not, 404 without a stream."""
    _require(request, user, dag_id(stream), "GET")
    return _existing(stream)


def rerunnable_stream(request: Request, user: User, stream: Annotated[str, Path()]) -> str:
    """The stream of the path, if the user may start runs of its DAG."""
    _require(request, user, dag_id(stream), "POST", DagAccessEntity.RUN)
    return _existing(stream)


def answerable_stream(request: Request, user: User, stream: Annotated[str, Path()]) -> str:
    """The stream of the path, if the user may answer what its DAG asks."""
    _require(request, user, dag_id(stream), "PUT", DagAccessEntity.HITL_DETAIL)
    return _existing(stream)


def path_day(day: Annotated[str, Path()]) -> date:
    """The day of the path. Raises HTTPException 404 for anything else."""
    try:
        found = date.fromisoformat(day)
    except ValueError:
        found = date.min
    if found.isoformat() != day or found.year not in YEARS:
        raise HTTPException(404, f"There is no day {day}: expected a date such as 2026-11-24.")
    return found


Readable = Annotated[str, Depends(readable_stream)]
Rerunnable = Annotated[str, Depends(rerunnable_stream)]
Answerable = Annotated[str, Depends(answerable_stream)]
ReadableDag = Annotated[str, Depends(readable_dag)]
PathDay = Annotated[date, Depends(path_day)]


def may(request: Request, user: BaseUser, stream: str, action: Literal["run", "answer"]) -> bool:
    """Whether the user may start runs of the stream's DAG, or answer what it asks."""
    try:
        if action == "run":
            _require(request, user, dag_id(stream), "POST", DagAccessEntity.RUN)
        else:
            _require(request, user, dag_id(stream), "PUT", DagAccessEntity.HITL_DETAIL)
    except HTTPException:
        return False
    return True


def readable_streams(user: BaseUser, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the streams whose DAG the user may read, as Airflow's own list of DAGs decides it."""
    readable = get_auth_manager().get_authorized_dag_ids(user=user, method="GET")
    return tuple(name for name in names if dag_id(name) in readable)


def stream_of_dag(dag: str) -> str | None:
    """The stream that a DAG reconciles; None for another DAG."""
    name = dag.removeprefix(_PREFIX)
    return name if name != dag and name in stream_names(streams_dir()) else None


def _require(
    request: Request, user: BaseUser, dag: str, method: Literal["GET", "POST", "PUT"], entity: Any = None
) -> None:
    requires_access_dag(method=method, access_entity=entity, param_dag_id=dag)(request, user)


def _existing(stream: str) -> str:
    if stream not in stream_names(streams_dir()):
        raise HTTPException(404, f"There is no stream {stream}.")
    return stream
