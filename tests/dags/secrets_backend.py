"""Secrets backends of Airflow that have nothing: one denies, one writes down what it was asked for."""

import os
from pathlib import Path

from airflow.sdk.bases.secrets_backend import BaseSecretsBackend  # as providers import it
from airflow.sdk.exceptions import AirflowSecretsBackendAccessDenied


class DenyingBackend(BaseSecretsBackend):
    """Denies access to connections whose ids begin with ``denied``."""

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> None:  # noqa: ARG002 - Airflow's
        if conn_id.startswith("denied"):
            raise AirflowSecretsBackendAccessDenied("the answer of a server")


class RecordingBackend(BaseSecretsBackend):
    """One line per question in the file ``ASKED``."""

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> None:  # noqa: ARG002 - Airflow's
        self._record(f"connection {conn_id}")

    def get_variable(self, key: str, team_name: str | None = None) -> None:  # noqa: ARG002 - Airflow's
        self._record(f"variable {key}")

    def _record(self, question: str) -> None:
        with Path(os.environ["ASKED"]).open("a", encoding="utf-8") as file:
            file.write(f"{question}\n")
