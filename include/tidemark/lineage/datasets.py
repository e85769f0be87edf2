"""Datasets and jobs of a stream, by the names that OpenLineage's specification and its Spark integration give them.

An Iceberg table is named by its folder, as ``openlineage-spark`` does it, and has its name in the catalog as a symlink.
So a consumer's Spark job that reads the table is connected to the job that publishes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from tidemark.connections.kafka import KafkaConnection
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, with its type as Iceberg writes it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A quality check of a dataset's rows: an assertion in OpenLineage's words."""

    assertion: str
    column: str | None
    success: bool
    blocks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What the catalog says of an Iceberg table: its folder, ``s3://bucket/path``, its columns and its snapshot."""

    location: str
    columns: tuple[Column, ...]
    snapshot: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A topic, an archive or a table. ``rows`` and ``files`` are what the run has read or written, where it is known.

    ``catalog`` is the catalog facet of a table, ``symlink`` its namespace and name there.
    """

    namespace: str
    name: str
    kind: Literal["TOPIC", "FILE", "TABLE"]
    about: str
    columns: tuple[Column, ...] = ()
    version: str | None = None
    symlink: tuple[str, str] | None = None
    catalog: Mapping[str, Any] | None = None
    rows: int | None = None
    files: int | None = None
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageJob:
    """A job. ``continuous``: it runs until somebody stops it."""

    namespace: str
    name: str
    about: str
    continuous: bool = False
    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()


def topic(kafka: KafkaConnection, name: str, about: str, rows: int | None = None) -> Dataset:
    """A topic. The first of the brokers names the cluster."""
    server = kafka.servers.split(",")[0].strip().rpartition("//")[2]
    return Dataset(namespace=f"kafka://{server}", name=name, kind="TOPIC", about=about, rows=rows)


def source(stream: Stream, settings: Settings) -> Dataset:
    """The topic that the stream reads."""
    return topic(settings.kafka, stream.topic, f"Source of stream {stream.name}")


def archive(stream: Stream, settings: Settings, rows: int | None = None, files: int | None = None) -> Dataset:
    """The folder of the stream's data objects."""
    return Dataset(
        namespace=f"s3://{settings.bucket}",
        name=Layout(prefix=settings.prefix, stream=stream.name).data_prefix.rstrip("/"),
        kind="FILE",
        about=f"Archive of topic {stream.topic}: every record with its offset, in Parquet",
        rows=rows,
        files=files,
    )


def table(settings: Settings, name: str, about: str, facts: TableFacts, rows: int | None = None) -> Dataset:
    """An Iceberg table of the deployment."""
    place = urlsplit(facts.location)
    return Dataset(
        namespace=f"s3://{place.netloc}",  # s3a:// is Hadoop's word for the same bucket
        name=place.path.strip("/"),
        kind="TABLE",
        about=about,
        columns=facts.columns,
        version=facts.snapshot,
        symlink=_in_catalog(settings, name),
        catalog={
            "framework": "iceberg",
            "type": settings.catalog_type,
            "name": settings.catalog,
            "metadataUri": settings.catalog_uri or None,
            "warehouseUri": settings.warehouse,
            "source": "tidemark",
        },
        rows=rows,
    )


def _in_catalog(settings: Settings, name: str) -> tuple[str, str] | None:
    """Namespace and name in the catalog.

    A JDBC URL is no namespace, and Glue's has the account's number, which only AWS knows.
    """
    full, uri = f"{settings.namespace}.{name}", settings.catalog_uri
    match settings.catalog_type:
        case "rest" | "nessie":
            return uri, full
        case "hive":
            return f"hive://{urlsplit(uri.split(',')[0]).netloc}", full
        case _:
            return None


def stream_job(
    stream: Stream, settings: Settings, layer: str, *, rows: int | None = None, dead_letters: int | None = None
) -> LineageJob:
    """The job of a continuous layer, with what it has written so far. A layer of one's own has no outputs here."""
    outputs: tuple[Dataset, ...] = ()
    if layer == "archive":
        outputs = (archive(stream, settings, rows),)
    elif layer == "speed":
        live, dead = stream.speed.topic, stream.speed.dead_letter_topic
        good = None if rows is None else rows - (dead_letters or 0)
        outputs = (
            topic(settings.speed_kafka, live, f"Transformed records of topic {stream.topic}", good),
            topic(settings.speed_kafka, dead, f"Records of topic {stream.topic} that have no row", dead_letters),
        )
    return LineageJob(
        namespace=settings.lineage_namespace,
        name=f"{stream.name}.{layer}",
        about=f"Layer {layer} of stream {stream.name}",
        continuous=True,
        inputs=(source(stream, settings),),
        outputs=outputs,
    )
