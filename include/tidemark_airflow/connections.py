"""A task's settings and its run. The settings are those of the process, and what Airflow's connections add.

Parsing a DAG asks for none of them.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret
from pydantic import Secret, SecretStr

from tidemark.connections.airflow import AirflowConnection
from tidemark.connections.shown import has_secret_word, shown
from tidemark.core.errors import ConfigError
from tidemark.settings import Settings, resolve

if TYPE_CHECKING:
    from tidemark.run import Run

_KEPT_SECONDS = 60
_SECRET_LENGTH = 12  # shorter values of properties with harmless names are common words, such as parquet


def task_settings() -> Settings:
    """The settings of this process, at most a minute old: the api-server lives long, and people renew connections.

    Airflow hides their secrets in its logs. Raises as ``resolve``.
    """
    return _settings_in(int(monotonic() // _KEPT_SECONDS))


@lru_cache(maxsize=1)
def _settings_in(_minute: int) -> Settings:
    found = resolve(find).settings
    for text in _secrets(found):
        mask_secret(text)
    return found


def open_run(stream: str, run_id: str) -> "Run":
    """The run of a stream that Airflow knows by this id. Raises ConfigError where there is no such stream."""
    from tidemark.run import Run, run_name

    return Run.open(stream, run_name(run_id), task_settings())


def _secrets(settings: Settings) -> Iterator[str]:
    """Every secret text. Airflow itself knows only some of the properties' names, such as ``password``."""
    for value in (getattr(settings, name) for name in Settings.model_fields):
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Secret):
            yield from (text for name, text in value.get_secret_value().items() if _is_masked(name, text))
    credential = settings.catalog_properties.get_secret_value().get("credential", "")
    yield credential.rpartition(":")[2]  # without the client's id


def _is_masked(name: str, text: str) -> bool:
    """Whether logs mask this value of a property: it may be a secret, and it is no common word or number."""
    if shown(name):
        return False
    return has_secret_word(name) or "jaas" in name or (len(text) >= _SECRET_LENGTH and not text.isdigit())


def find(conn_id: str) -> AirflowConnection | None:
    """The connection, from the deployment's secrets backends or Airflow's database; None if there is none.

    Raises ConfigError, without a value, if Airflow refuses to give it or its extra is no JSON object.
    """
    where = f"Airflow connection {conn_id}"
    try:
        found = Connection.get(conn_id)
    except AirflowNotFoundException:
        return None
    except (AirflowException, PermissionError) as error:  # the second one: access denied
        raise ConfigError("Airflow can't give a connection", found=type(error).__name__, where=where) from error
    try:
        extra = json.loads(found.extra or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ConfigError("a connection's extra can't be read", expected="a JSON object", where=where)
    return AirflowConnection(
        id=conn_id,
        host=found.host or "",
        port=found.port,
        login=found.login or "",
        password=found.password or "",
        extra=extra,
    )
