"""What an Airflow connection says of Tidemark's settings, as Airflow's own providers keep it. It needs no Airflow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.core.errors import ConfigError

# What Airflow's Kafka provider keeps beside the connection itself, for its own consumers.
_OF_CONSUMERS = frozenset({"group.id", "group.instance.id", "auto.offset.reset", "enable.auto.commit", "client.id"})
_ASSUME_ROLE = (None, "", "assume_role")


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowConnection:
    """The fields of an Airflow connection. Only its id is shown."""

    id: str
    host: str = field(default="", repr=False)
    port: int | None = field(default=None, repr=False)
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def refused(self, problem: str, found: str) -> ConfigError:
        """An error of this connection. ``found`` holds names, never a value that may be secret."""
        return ConfigError(problem, found=found, where=f"Airflow connection {self.id}")


def kafka(connection: AirflowConnection) -> dict[str, Any]:
    """Settings of a connection of type ``kafka``, whose extra has librdkafka's names."""
    return {"kafka_properties": {name: item for name, item in connection.extra.items() if name not in _OF_CONSUMERS}}


def s3(connection: AirflowConnection) -> dict[str, Any]:
    """Settings of a connection of type ``aws``. Raises ConfigError for a way to log in that Tidemark does not have."""
    extra = connection.extra
    session, config = _table(extra, "session_kwargs"), _table(extra, "config_kwargs")
    services = _table(extra, "service_config")
    role, proxies = _table(extra, "assume_role_kwargs"), _table(config, "proxies")
    method, verify = extra.get("assume_role_method"), extra.get("verify")
    if method not in _ASSUME_ROLE:
        raise connection.refused("a role can only be assumed by assume_role", f"assume_role_method {method}")
    if others := sorted(role.keys() - {"ExternalId"}):
        raise connection.refused("a role can only be assumed with an ExternalId", ", ".join(others))
    if verify is False:
        raise connection.refused("S3's certificate is always verified", "verify false")
    values = {
        "s3_access_key": connection.login,
        "s3_secret_key": connection.password,
        "s3_session_token": extra.get("aws_session_token") or session.get("aws_session_token"),
        "s3_profile": extra.get("profile_name") or session.get("profile_name"),
        "s3_role_arn": extra.get("role_arn"),
        "s3_external_id": role.get("ExternalId") or extra.get("external_id"),
        "s3_region": extra.get("region_name") or session.get("region_name"),
        "s3_endpoint": _table(services, "s3").get("endpoint_url") or extra.get("endpoint_url"),
        "s3_sts_endpoint": _table(services, "sts").get("endpoint_url"),
        "s3_addressing": _table(config, "s3").get("addressing_style"),
        "s3_proxy": proxies.get("https") or proxies.get("http"),
        "s3_ca_bundle": verify if isinstance(verify, str) else None,
        "bucket": _table(services, "s3").get("bucket_name"),
    }
    return {name: value for name, value in values.items() if value}


def catalog(connection: AirflowConnection) -> dict[str, Any]:
    """Settings of a connection of type ``generic``, whose extra has Iceberg's names, and its host the URL.

    The extra's ``type`` is the catalog's type. Login and password become what a catalog of this type calls them.
    """
    properties = dict(connection.extra)
    kind = properties.pop("type", None)
    uri = properties.pop("uri", None) or connection.host + (f":{connection.port}" if connection.port else "")
    login, password = connection.login, connection.password
    if login or password:
        if kind in (None, "jdbc"):
            properties |= {"jdbc.user": login, "jdbc.password": password}
        elif kind == "rest":
            properties["credential"] = f"{login}:{password}" if login else password
        else:
            raise connection.refused("a catalog of this type has no login", f"a login or password, type {kind}")
    values = {"catalog_type": kind, "catalog_uri": uri, "catalog_properties": properties}
    return {name: value for name, value in values.items() if value}


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}
