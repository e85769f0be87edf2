"""One day from Kafka to its proof on an S3 server with TLS, by a role, every object encrypted with a key of ours."""

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.conftest import MakeStream, Produce
from tests.s3_server import EXTERNAL_ID, ROLE, s3_server
from tidemark.installation import PROJECT
from tidemark.s3 import ensure_bucket
from tidemark.settings import Settings
from tidemark.stack.certificates import server_certificate
from tidemark.stack.local import LocalStack
from tidemark.verify.day import verify_day

pytestmark = pytest.mark.services
DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)
KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-test"
# A stream and a command, in one JVM.
PROGRAM = """\
import sys
from tidemark.archive.stream.driver import archive
from tidemark.cli import app
from tidemark.definitions.stream import load_stream
from tidemark.settings import settings
from tidemark.spark.session import spark_session
found = settings()
stream = load_stream(sys.argv[1], found.streams_dir)
spark = spark_session(found, "secured")
archive(spark, stream, found, available_now=True)
print(spark.sparkContext.getConf().getAll())
sys.argv = ["tidemark", "reconcile", stream.name, "--from", sys.argv[2]]
app.main()
"""
KINDS = {
    "certificates",
    "checkpoints",
    "conditional-writes.probe",
    "data",
    "heartbeats",
    "leases",
    "log-extents",
    "manifests",
    "runs",
    "seals",
    "status",
    "summaries",
    "warehouse",
}


@pytest.mark.conformance(65)
def test_every_object_of_a_day_is_encrypted_and_written_by_the_role_over_tls(
    stack: LocalStack, make_stream: MakeStream, produce: Produce, tmp_path: Path
) -> None:
    stream = make_stream(batch={"wait_seconds": 0})
    values = [json.dumps({"n": n}).encode() for n in range(3)] + [b"no JSON"]
    produce(stream.topic, [(None, value, NOON_MS, 0, ()) for value in values])
    tls = server_certificate(tmp_path / "tls")
    with s3_server((tls.certificate, tls.key)) as server:
        key, secret = (
            found.get_secret_value() for found in (stack.settings.s3_access_key, stack.settings.s3_secret_key)
        )
        server.known.add(key)
        changes = {
            "s3_endpoint": server.url,
            "s3_sts_endpoint": server.url,
            "s3_role_arn": ROLE,
            "s3_external_id": EXTERNAL_ID,
            "s3_ca_bundle": str(tls.ca),
            "s3_encryption": "aws:kms",
            "s3_kms_key": KEY,
            "s3_bucket_key": "true",
            "catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        }
        settings = Settings.model_validate({**stack.settings.model_dump(), **changes})
        ensure_bucket(settings)
        server.requests.clear()
        variables = {f"TIDEMARK_{name.upper()}": value for name, value in changes.items()}
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, stream.name, str(DAY)],
            cwd=PROJECT,
            env={**os.environ, **stack.env, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == 0, ended
        callers = {one.caller for one in server.requests if one.path != "AssumeRole"}
        assert callers <= server.issued.keys()
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            verify=str(tls.ca),
        )
        found: dict[str, dict[str, Any]] = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=settings.bucket):
            for item in page["Contents"]:
                found[item["Key"]] = {**client.head_object(Bucket=settings.bucket, Key=item["Key"])}
        assert {name.split("/")[0] for name in found} == KINDS
        encrypted = {name: (head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")) for name, head in found.items()}
        assert encrypted == dict.fromkeys(found, ("aws:kms", KEY))
        # Spark's clients can't ask for a bucket key.
        asked = {name for name, head in found.items() if head.get("BucketKeyEnabled")}
        assert {name.split("/")[0] for name in set(found) - asked} == {"checkpoints", "warehouse"}
        assert [text for text in (key, secret) if text in ended.stdout + ended.stderr] == []
        assert verify_day(settings, stream.name, DAY).verdict == "proven"  # Pyiceberg reads the tables.
