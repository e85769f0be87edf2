"""The hooks of Tidemark's connection types. Each gives the settings that its connection has."""

from typing import Any, ClassVar

from airflow.sdk import BaseHook

from tidemark.connections import airflow as read
from tidemark.connections.airflow import AirflowConnection
from tidemark.core.errors import TidemarkError
from tidemark_airflow.connections import find


class SettingsHook(BaseHook):
    """A connection whose fields are settings of Tidemark."""

    conn_name_attr = "conn_id"
    default_conn_name: ClassVar[str]

    def __init__(self, conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id or self.default_conn_name

    def get_conn(self) -> dict[str, Any]:
        """The settings by name, secrets included. Raises ConfigError where Tidemark can't use the connection."""
        found = find(self.conn_id)
        return {} if found is None else self.read(found)

    def read(self, connection: AirflowConnection) -> dict[str, Any]:
        raise NotImplementedError

    def test_connection(self) -> tuple[bool, str]:
        """Whether Tidemark can use the connection's fields. ``tidemark doctor`` asks the server."""
        try:
            names = sorted(self.get_conn())
        except TidemarkError as error:
            return False, str(error)
        return bool(names), f"settings: {', '.join(names) or 'none'}"


class KafkaHook(SettingsHook):
    """Properties of a Kafka cluster."""

    conn_type = "tidemark_kafka"
    hook_name = "Tidemark: Kafka"
    default_conn_name = "tidemark_kafka"

    def read(self, connection: AirflowConnection) -> dict[str, Any]:
        return read.kafka(connection)


class S3Hook(SettingsHook):
    """Endpoint, keys and role of S3."""

    conn_type = "tidemark_s3"
    hook_name = "Tidemark: S3"
    default_conn_name = "tidemark_s3"

    def read(self, connection: AirflowConnection) -> dict[str, Any]:
        return read.s3(connection)


class CatalogHook(SettingsHook):
    """URL and properties of the Iceberg catalog."""

    conn_type = "tidemark_catalog"
    hook_name = "Tidemark: Iceberg catalog"
    default_conn_name = "tidemark_catalog"

    def read(self, connection: AirflowConnection) -> dict[str, Any]:
        return read.catalog(connection)
