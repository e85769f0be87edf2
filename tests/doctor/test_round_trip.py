"""The doctor's own table: every object of it asks for the settings' encryption, and nothing of it stays."""

from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import s3_server
from tidemark.s3 import ObjectStore, ensure_bucket
from tidemark.settings import Settings
from tidemark.tables.round_trip import commit_round_trip

KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-test"


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ({}, {}),
        (
            {"s3_encryption": "aws:kms", "s3_kms_key": KEY, "s3_bucket_key": True},
            {
                "server_side_encryption": "aws:kms",
                "server_side_encryption_aws_kms_key_id": KEY,
                "server_side_encryption_bucket_key_enabled": "true",
            },
        ),
    ],
)
def test_each_object_of_the_doctors_table_is_encrypted_as_the_settings_say(
    tmp_path: Path, asked: dict[str, Any], headers: dict[str, str]
) -> None:
    with s3_server() as server:
        server.known.add("key")
        given = {"s3_endpoint": server.url, "s3_access_key": "key", "s3_secret_key": "key", "bucket": "lake", **asked}
        place = {"catalog_uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}", "table_location": "s3://lake/tables"}
        settings = Settings.model_validate({"kafka_bootstrap": "h:1", **place, **given})
        ensure_bucket(settings)
        server.requests.clear()
        found = commit_round_trip(settings)
        written = [one for one in server.requests if one.method in {"PUT", "POST"}]
        assert (found.rows, found.conflict_refused) == (1, True)
        # Three versions of the metadata, a manifest and its list, and a data file, where the settings want them.
        assert len(written) >= 6
        assert {one.path.rpartition("/doctor_")[0] for one in written} == {"/lake/tables"}
        for one in written:
            assert {name: text for name, text in one.headers.items() if name.startswith("server_side")} == headers
        assert list(ObjectStore(settings).list("")) == []
