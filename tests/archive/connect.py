"""The objects that Confluent's S3 sink for Kafka Connect writes: their names and bytes."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config

from tidemark.settings import Settings

Value = dict[str, Any]
AVRO = {
    "type": "record",
    "name": "ConnectDefault",
    "namespace": "io.confluent.connect.avro",
    "fields": [{"name": "n", "type": "long"}, {"name": "at", "type": "string"}],
}


Headers = Sequence[tuple[str, str]]


def lines(values: Sequence[Any]) -> bytes:
    """As JsonFormat writes them."""
    return b"".join(json.dumps(value, separators=(",", ":")).encode() + b"\n" for value in values)


def header_lines(headers: Sequence[Headers]) -> bytes:
    """As JsonFormat writes headers: each record's in a field of that name."""
    return lines([{"headers": [{"key": key, "value": value} for key, value in one]} for one in headers])


def _avro(values: Sequence[Value]) -> bytes:
    body = io.BytesIO()
    fastavro.writer(body, AVRO, values, codec="deflate")
    return body.getvalue()


def _parquet(values: Sequence[Value]) -> bytes:
    body = io.BytesIO()
    table = pa.Table.from_pylist(list(values), schema=pa.schema([("n", pa.int64()), ("at", pa.string())]))
    pq.write_table(table, body, compression="snappy")
    return body.getvalue()


FORMATS: dict[str, Callable[[Sequence[Value]], bytes]] = {
    "json": lines,
    "json.gz": lambda values: gzip.compress(lines(values)),
    "bin": lines,
    "avro": _avro,
    "snappy.parquet": _parquet,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSink:
    """A sink that writes below ``topics_dir``."""

    settings: Settings
    topic: str
    topics_dir: str

    @property
    def client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.settings.s3_endpoint,
            region_name=self.settings.s3_region,
            aws_access_key_id=self.settings.s3_access_key.get_secret_value(),
            aws_secret_access_key=self.settings.s3_secret_key.get_secret_value(),
            config=Config(s3={"addressing_style": "path"}, response_checksum_validation="when_required"),
        )

    def key(self, partition: int, start: int, form: str = "json", *, folder: str | None = None) -> str:
        """``folder`` is the partitioner's: the default partitioner's where none is given."""
        folder = folder or f"partition={partition}"
        return f"{self.topics_dir}/{self.topic}/{folder}/{self.topic}+{partition}+{start:010}.{form}"

    def write(
        self, partition: int, start: int, values: Sequence[Value], form: str = "json", *, folder: str | None = None
    ) -> str:
        """An object of these values; its key."""
        key = self.key(partition, start, form, folder=folder)
        self.put(key, FORMATS[form](values))
        return key

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=self.settings.bucket, Key=key, Body=body)

    def objects(self) -> dict[str, tuple[Any, str, bytes]]:
        """Everything there: when it was written, its ETag and its bytes."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.settings.bucket, Prefix=f"{self.topics_dir}/"
        )
        return {
            item["Key"]: (
                item["LastModified"],
                item["ETag"],
                self.client.get_object(Bucket=self.settings.bucket, Key=item["Key"])["Body"].read(),
            )
            for page in pages
            for item in page.get("Contents", ())
        }
