"""Airflow's connections in a task, through its own SDK: found, missing, denied and unreadable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.installation import PROJECT

pytestmark = pytest.mark.services
SECRETS = ["of-kafka", "se/cr:et@", "id-of-client:a-credential", "a-credential", "a-jaas-line", "of-java-alone"]
HARMLESS = ["parquet", "300000", "300000000000"]
PROGRAM = """
import json
import os
from airflow.sdk.log import redact
from tidemark.core.errors import ConfigError
from tidemark_airflow.connections import find, task_settings
found = [json.dumps({name: text for name, text in task_settings().environment().items() if text})]
for name in ("absent", "denied", "unreadable", "a_list"):
    try:
        found.append(repr(find(name)))
    except ConfigError as error:
        found.append(str(error))
texts = json.loads(os.environ["TEXTS"])
found.append(json.dumps([text for text in texts if text in str(redact(f"an error with {text}"))]))
print("\\n".join(found))
"""
OF_KAFKA = {
    "bootstrap.servers": "b:1",
    "sasl.password": "of-kafka",
    "java.sasl.jaas.config": "a-jaas-line",
    "java.s": "of-java-alone",
    "java.t": "parquet",
    "java.u": "300000",
    "java.v": "300000000000",
}
CONNECTIONS = {
    "TIDEMARK_KAFKA": {
        "conn_type": "kafka",
        "extra": OF_KAFKA,
    },
    "TIDEMARK_S3": {"conn_type": "aws", "login": "key", "password": "se/cr:et@", "extra": {"region_name": "eu-west-1"}},
    "CATALOG_OF_MINE": {
        "conn_type": "generic",
        "host": "https://c:8181/api",
        "extra": {"type": "rest", "credential": "id-of-client:a-credential"},
    },
    "UNREADABLE": {"conn_type": "generic", "extra": "PLANTED"},
    "A_LIST": {"conn_type": "generic", "extra": '["PLANTED"]'},
}


@pytest.mark.conformance(29)
def test_a_task_has_its_settings_from_airflows_connections_and_errors_hold_no_value(tmp_path: Path) -> None:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **inherited,
            **{f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in CONNECTIONS.items()},
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__SECRETS__BACKEND": "secrets_backend.DenyingBackend",
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(Path(__file__).parent)]),
            "TEXTS": json.dumps(SECRETS + HARMLESS),
            "TIDEMARK_ENV_FILE": "",
            "TIDEMARK_BUCKET": "lake",
            "TIDEMARK_CATALOG_CONNECTION": "catalog_of_mine",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    settings, *answers, shown = done.stdout.splitlines()[-6:]
    assert json.loads(shown) == HARMLESS
    expected = {
        "TIDEMARK_KAFKA_BOOTSTRAP": "b:1",
        "TIDEMARK_KAFKA_PROPERTIES": json.dumps(OF_KAFKA),
        "TIDEMARK_S3_ACCESS_KEY": "key",
        "TIDEMARK_S3_SECRET_KEY": "se/cr:et@",
        "TIDEMARK_S3_REGION": "eu-west-1",
        "TIDEMARK_CATALOG_TYPE": "rest",
        "TIDEMARK_CATALOG_URI": "https://c:8181/api",
        "TIDEMARK_CATALOG_PROPERTIES": '{"credential": "id-of-client:a-credential"}',
    }
    read = json.loads(settings)
    assert {name: read.get(name) for name in expected} == expected
    problem = "a connection's extra can't be read: expected a JSON object [Airflow connection {}]"
    assert answers == [
        "None",
        "Airflow can't give a connection: found AirflowSecretsBackendAccessDenied [Airflow connection denied]",
        problem.format("unreadable"),
        problem.format("a_list"),
    ]
    assert "PLANTED" not in done.stdout + done.stderr
