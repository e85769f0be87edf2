"""What Airflow knows about this provider. Each of its processes reads it, so it imports nothing heavy."""

from typing import Any
from urllib.parse import SplitResult

_TEXT = {"type": ["string", "null"]}
_SECRET = {**_TEXT, "format": "password"}


def get_provider_info() -> dict[str, Any]:
    """The provider: its connection types with their forms, and its assets' URIs."""
    return {
        "package-name": "airflow-provider-tidemark",
        "name": "Tidemark",
        "description": "Kafka to S3 and back to Kafka, with every day proven complete.",
        "connection-types": [_KAFKA, _S3, _CATALOG],
        "asset-uris": [{"schemes": ["tidemark"], "handler": f"{__name__}.checked_asset_uri"}],
    }


def checked_asset_uri(uri: SplitResult) -> SplitResult:
    """The URI of an asset of a stream, ``tidemark://streams/<stream>/sealed`` or ``…/day``; raises ValueError for
    another one."""
    parts = uri.path.split("/")
    if uri.netloc != "streams" or len(parts) != 3 or not parts[1] or parts[2] not in {"sealed", "day"}:
        expected = "tidemark://streams/STREAM/sealed or tidemark://streams/STREAM/day"
        raise ValueError(f"not the URI of a stream's asset: expected {expected}, found {uri.geturl()}")
    return uri


def _field(label: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"label": label, "schema": schema, "description": description}


_KAFKA = {
    "connection-type": "tidemark_kafka",
    "hook-class-name": "tidemark_airflow.hooks.KafkaHook",
    "hook-name": "Tidemark: Kafka",
    "ui-field-behaviour": {
        "hidden-fields": ["host", "port", "login", "password", "schema"],
        "relabeling": {"extra": "Other properties, with librdkafka's names"},
        "placeholders": {"bootstrap.servers": "kafka-1.example.com:9093,kafka-2.example.com:9093"},
    },
    "conn-fields": {
        "bootstrap.servers": _field("Brokers", _TEXT, "A list of host:port."),
        "security.protocol": _field(
            "Security protocol", {**_TEXT, "enum": [None, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]}, ""
        ),
        "sasl.mechanism": _field("SASL mechanism", _TEXT, "Such as SCRAM-SHA-512."),
        "sasl.username": _field("User", _TEXT, "The SASL user."),
        "sasl.password": _field("Password", _SECRET, "The SASL password."),
    },
}
_S3 = {
    "connection-type": "tidemark_s3",
    "hook-class-name": "tidemark_airflow.hooks.S3Hook",
    "hook-name": "Tidemark: S3",
    "ui-field-behaviour": {
        "hidden-fields": ["host", "port", "schema"],
        "relabeling": {"login": "Access key", "password": "Secret key"},
        "placeholders": {"endpoint_url": "https://s3.example.com"},
    },
    "conn-fields": {
        "endpoint_url": _field("Endpoint", _TEXT, "URL of the S3 server. Empty: AWS."),
        "region_name": _field("Region", _TEXT, "Region of the bucket."),
        "role_arn": _field("Role", _TEXT, "ARN of the role to assume."),
        "external_id": _field("External id", _TEXT, "External id that the role asks for."),
        "profile_name": _field("Profile", _TEXT, "Profile in the files of AWS's clients, instead of keys."),
    },
}
_CATALOG = {
    "connection-type": "tidemark_catalog",
    "hook-class-name": "tidemark_airflow.hooks.CatalogHook",
    "hook-name": "Tidemark: Iceberg catalog",
    "ui-field-behaviour": {
        "hidden-fields": ["schema"],
        "relabeling": {"host": "URL", "login": "User or client id", "password": "Password or client secret"},
        "placeholders": {"host": "https://catalog.example.com"},
    },
    "conn-fields": {
        "type": _field("Type", {**_TEXT, "enum": [None, "jdbc", "rest", "glue", "hive", "nessie"]}, ""),
        "warehouse": _field("Warehouse", _TEXT, "What the catalog calls the warehouse, if it needs one."),
    },
}
