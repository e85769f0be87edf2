"""Read the archive with boto3, json and pyarrow only, without the product's code."""

import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from botocore.config import Config

from tidemark.settings import Settings

Position = tuple[int, int]
# S3Proxy lists an object while it is being written, by its key and a UUID.
WHILE_WRITTEN = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")


@dataclass(frozen=True, kw_only=True)
class Archive:
    """``manifests`` by writer and batch; ``rows`` of every listed object in manifest order, one per listing."""

    manifests: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    listed: set[str]
    objects: dict[str, int]

    @property
    def positions(self) -> Counter[Position]:
        return Counter((row["partition"], row["offset"]) for row in self.rows)

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """(partition, start, end) as committed, in manifest order."""
        return [(item["partition"], item["start"], item["end"]) for one in self.manifests for item in one["ranges"]]


class Oracle:
    """One stream's part of the bucket."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._bucket, self.stream = settings.bucket, stream
        self.client = boto3.client(
            "s3",
            endpoint_url=settings.s3_endpoint,
            region_name=settings.s3_region,
            aws_access_key_id=settings.s3_access_key.get_secret_value(),
            aws_secret_access_key=settings.s3_secret_key.get_secret_value(),
            config=Config(s3={"addressing_style": "path"}, response_checksum_validation="when_required"),
        )

    def body(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return body

    def rows(self, key: str) -> list[dict[str, Any]]:
        """An object's rows: bytes as bytes, times as datetimes."""
        rows: list[dict[str, Any]] = self.table(key).to_pylist()
        return rows

    def table(self, key: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.body(key)))

    def keys(self, kind: str) -> dict[str, int]:
        """Keys and sizes below ``data``, ``manifests`` or ``checkpoints``, sorted."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=f"{kind}/{self.stream}/"
        )
        found = (item for page in pages for item in page.get("Contents", ()))
        return {item["Key"]: item["Size"] for item in found if not WHILE_WRITTEN.search(item["Key"])}

    def open_uploads(self) -> list[str]:
        answer = self.client.list_multipart_uploads(Bucket=self._bucket)
        return [item["Key"] for item in answer.get("Uploads", ()) if f"/{self.stream}/" in item["Key"]]

    def delete(self, prefix: str) -> int:
        """Delete the stream's objects below ``prefix``, and return their number."""
        keys = self.keys(prefix)
        for key in keys:
            self.client.delete_object(Bucket=self._bucket, Key=key)
        return len(keys)

    def archive(self) -> Archive:
        manifests = [json.loads(self.body(key)) for key in self.keys("manifests")]
        files = [file["key"] for manifest in manifests for file in manifest["files"]]
        return Archive(
            manifests=manifests,
            rows=[row for key in files for row in self.rows(key)],
            listed=set(files),
            objects=self.keys("data"),
        )
