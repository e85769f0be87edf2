"""A secrets backend of Airflow that has nothing, and writes down what it was asked for."""

import os
from pathlib import Path

from airflow.sdk.bases.secrets_backend import BaseSecretsBackend  # as providers' backends import it


class RecordingBackend(BaseSecretsBackend):
    """One line per question in the file ``ASKED``."""

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> None:  # noqa: ARG002 - Airflow's
        self._record(f"connection {conn_id}")

    def get_variable(self, key: str, team_name: str | None = None) -> None:  # noqa: ARG002 - Airflow's
        self._record(f"variable {key}")

    def _record(self, question: str) -> None:
        with Path(os.environ["ASKED"]).open("a", encoding="utf-8") as file:
            file.write(f"{question}\n")
