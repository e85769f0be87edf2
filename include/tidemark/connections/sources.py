"""Where settings come from: ``TIDEMARK_*`` variables, then a TOML file (``config_file``), then Airflow connections."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from tidemark.connections import airflow
from tidemark.connections.airflow import AirflowConnection
from tidemark.core.errors import ConfigError
from tidemark.core.text import did_you_mean

PREFIX = "TIDEMARK_"
ENV_FILE_VARIABLE = f"{PREFIX}ENV_FILE"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
PROFILE_VARIABLE = f"{PREFIX}PROFILE"
OWN_VARIABLES = (ENV_FILE_VARIABLE, CONFIG_VARIABLE, PROFILE_VARIABLE)
BUCKET_VARIABLE = f"{PREFIX}BUCKET"  # the one setting without a default that every deployment has
LOCAL_STACK = ".tidemark/local/stack.env"

Lookup = Callable[[str], AirflowConnection | None]


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value as its source has it. ``source`` names the source for people."""

    value: Any = field(repr=False)
    source: str


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def env_file(variables: Mapping[str, str]) -> Path | None:
    """The file with more variables: the named one, or the local stack's, or none.

    The local stack's is read only if the variables name no deployment. Otherwise a command would mix the settings of
    two deployments, depending on the folder that it is started in.
    """
    text = variables.get(ENV_FILE_VARIABLE)
    if text is None:
        text = "" if variables.get(CONFIG_VARIABLE) or variables.get(BUCKET_VARIABLE) else LOCAL_STACK
    return Path(text) if text else None


def from_variables(names: Collection[str], variables: Mapping[str, str]) -> dict[str, Given]:
    """The settings that variables give, or the env file. Raises ConfigError with a misspelt variable."""
    known = {variable(name): name for name in names}
    file = env_file(variables)
    # No interpolation: a password may contain ${, and single quotes would not protect it.
    in_file = dotenv_values(file, interpolate=False) if file else {}
    found = {name: Given(text, f"{name} in {file}") for name, text in in_file.items() if text is not None}
    found |= {name: Given(text, f"variable {name}") for name, text in variables.items() if name.startswith(PREFIX)}
    for name in sorted(found.keys() - known.keys() - set(OWN_VARIABLES)):
        hint = did_you_mean(name, known)
        # A shell may have variables of others with this prefix, but not the file.
        if name.startswith(PREFIX) and (hint or name in in_file):
            where = str(file) if name in in_file else "environment"
            raise ConfigError("unknown setting", found=name, where=where, hint=hint)
    return {known[name]: item for name, item in found.items() if name in known}


def from_airflow(given: Mapping[str, Given], ids: Mapping[str, str], lookup: Lookup) -> dict[str, Given]:
    """What Airflow connections give of the settings that nothing else gives.

    A connection is asked only if nothing else says who the client is. ``ids`` are the settings ``…_connection``. Raises
    ConfigError if a connection that is named on purpose is missing, or has what Tidemark can't use.
    """
    found: dict[str, Given] = {}
    for setting, (identity, read) in _CONNECTIONS.items():
        if not ids[setting] or identity & given.keys():
            continue
        connection = lookup(ids[setting])
        if connection is not None:
            source = f"Airflow connection {connection.id}"
            values = read(connection, given)
            found |= {name: Given(value, source) for name, value in values.items() if name not in given}
        elif setting in given:
            raise ConfigError(
                "no such Airflow connection",
                expected=f"the one that {setting} names",
                found=ids[setting],
                where=given[setting].source,
            )
    return found


def _kafka(connection: AirflowConnection, _given: Mapping[str, Given]) -> dict[str, Any]:
    return airflow.kafka(connection)


def _speed(connection: AirflowConnection, _given: Mapping[str, Given]) -> dict[str, Any]:
    return {f"speed_{name}": value for name, value in airflow.kafka(connection).items()}


def _s3(connection: AirflowConnection, _given: Mapping[str, Given]) -> dict[str, Any]:
    return airflow.s3(connection)


def _catalog(connection: AirflowConnection, given: Mapping[str, Given]) -> dict[str, Any]:
    return airflow.catalog(connection, given["catalog_type"].value if "catalog_type" in given else None)


# The settings that say who the client is, and what a connection says of them and of others.
_CONNECTIONS: dict[str, tuple[set[str], Callable[[AirflowConnection, Mapping[str, Given]], dict[str, Any]]]] = {
    "kafka_connection": ({"kafka_properties"}, _kafka),
    "speed_kafka_connection": ({"speed_kafka_properties"}, _speed),
    "s3_connection": (
        {"s3_access_key", "s3_secret_key", "s3_session_token", "s3_profile", "s3_role_arn", "s3_external_id"},
        _s3,
    ),
    "catalog_connection": ({"catalog_properties"}, _catalog),
}
