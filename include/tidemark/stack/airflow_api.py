"""A client of Airflow's REST API, with the calls that the local stack needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from tidemark.core.errors import ServiceError

TIMEOUT_S = 90  # longer than Airflow itself waits for its SQLite database on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task of a DAG run. ``state`` is None until the scheduler sets it; ``tries`` counts the attempts."""

    task: str
    state: str | None
    tries: int
    seconds: float | None


class AirflowApi:
    """Every method raises ServiceError, with call and answer, if the server does not answer or refuses.

    ``url`` is the server for people, ``tasks_url`` the one for tasks, with a slash at its end.
    """

    def __init__(self, url: str, tasks_url: str, user: str, password: str) -> None:
        self.url = url
        self.tasks_url = tasks_url
        self._user = user
        self._password = password
        self._client = httpx.Client(timeout=TIMEOUT_S)
        self._token: str | None = None

    def health(self) -> dict[str, str | None]:
        """The status of each component, by name."""
        found = self._send("GET", f"{self.url}/api/v2/monitor/health")
        found["tasks_api"] = self._send("GET", f"{self.tasks_url}health")
        return {name: part.get("status") for name, part in found.items() if part}

    def dag_known(self, dag_id: str) -> bool:
        """Whether the DAG processor has found the DAG yet."""
        return self._authorised("GET", f"/api/v2/dags/{dag_id}", absent_is_none=True) is not None

    def import_errors(self) -> dict[str, str]:
        """The text of each import error, by DAG file."""
        found = self._authorised("GET", "/api/v2/importErrors")
        return {item["filename"]: item["stack_trace"] for item in found["import_errors"]}

    def unpause(self, dag_id: str) -> None:
        self._authorised("PATCH", f"/api/v2/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Start a run without a logical date. Return its run id."""
        body = {"logical_date": None, "conf": dict(conf)}
        return str(self._authorised("POST", f"/api/v2/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """``queued``, ``running``, ``success`` or ``failed``."""
        return str(self._authorised("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def task_states(self, dag_id: str, run_id: str) -> tuple[TaskState, ...]:
        found = self._authorised("GET", f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return tuple(
            TaskState(
                task=item["task_id"], state=item["state"], tries=item["try_number"] or 0, seconds=item["duration"]
            )
            for item in found["task_instances"]
        )

    def _authorised(self, method: str, path: str, *, absent_is_none: bool = False, **body: Any) -> Any:
        if self._token is None:
            credentials = {"username": self._user, "password": self._password}
            self._token = str(self._send("POST", f"{self.url}/auth/token", json=credentials)["access_token"])
        headers = {"Authorization": f"Bearer {self._token}"}
        return self._send(method, f"{self.url}{path}", absent_is_none=absent_is_none, headers=headers, **body)

    def _send(self, method: str, url: str, *, absent_is_none: bool = False, **body: Any) -> Any:
        try:
            answer = self._client.request(method, url, **body)
        except httpx.HTTPError as error:
            raise ServiceError(
                "Airflow does not answer", found=f"{type(error).__name__}: {error}", where=f"{method} {url}"
            ) from error
        if absent_is_none and answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if not answer.is_success:
            raise ServiceError(
                "Airflow refused a call",
                found=f"{answer.status_code}: {answer.text[:500]}",
                where=f"{method} {url}",
            )
        return answer.json()
