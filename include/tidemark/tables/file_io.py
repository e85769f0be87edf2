"""Pyiceberg's files on S3, with what Arrow can't do: ask for encryption, and delete without leaving an empty object."""

import json
import logging
from functools import cache
from io import BytesIO
from threading import Lock
from typing import Any, Literal

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tidemark.connections.s3 import connection_options

CA_BUNDLE = "tidemark.s3.ca-bundle"
ENCRYPTION = "tidemark.s3.encryption"
S3_FILES = f"{__name__}.S3Files"
_ONE_AT_A_TIME = Lock()
# Else a line about this class for each table that a task loads.
logging.getLogger("pyiceberg.io").setLevel(logging.WARNING)


class S3Files(PyArrowFileIO):
    """Reads and writes what ``tidemark.tables.reader.s3_properties`` describes.

    Its property ``CA_BUNDLE`` names a PEM file, for which pyiceberg has no setting. ``ENCRYPTION`` has arguments of
    PutObject, as JSON.
    """

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        given = self.properties
        if CA_BUNDLE not in given:
            return super()._initialize_s3_fs(netloc)
        return S3FileSystem(
            access_key=given["s3.access-key-id"],
            secret_key=given["s3.secret-access-key"],
            session_token=given.get("s3.session-token"),
            region=given["s3.region"],
            endpoint_override=given.get("s3.endpoint"),
            proxy_options=given.get("s3.proxy-uri"),
            force_virtual_addressing=given["s3.force-virtual-addressing"] == "true",
            tls_ca_file_path=given[CA_BUNDLE],
        )

    def new_output(self, location: str) -> PyArrowFile:
        """A file that is written with the encryption."""
        scheme, bucket, path = self.parse_location(location, self.properties)
        return _WrittenFile(location, path, self.fs_by_scheme(scheme, bucket), self.properties)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object; Arrow would write an empty one for its folder."""
        name = location if isinstance(location, str) else location.location
        bucket, _, key = self.parse_location(name, self.properties)[2].partition("/")
        _ask(self.properties, "delete_object", Bucket=bucket, Key=key)


class _WrittenFile(PyArrowFile):
    """A small file, in memory until it is closed: large ones are Spark's."""

    def __init__(self, location: str, path: str, fs: FileSystem, properties: dict[str, Any]) -> None:
        super().__init__(location, path, fs)
        self._properties = properties

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT002 - as pyiceberg has it
        """Raises FileExistsError unless the file may be overwritten or is not there."""
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return _Body(self._path, self._properties)


class _Body(BytesIO):
    """What is written goes to S3 when it is closed."""

    def __init__(self, path: str, properties: dict[str, Any]) -> None:
        super().__init__()
        self._path = path
        self._properties = properties

    def close(self) -> None:
        """Raises OSError if S3 refuses."""
        if self.closed:
            return
        body = self.getvalue()
        super().close()
        bucket, _, key = self._path.partition("/")
        encryption = json.loads(self._properties.get(ENCRYPTION, "{}"))
        _ask(self._properties, "put_object", Bucket=bucket, Key=key, Body=body, **encryption)


@cache
def _session() -> boto3.Session:
    """One for all clients: a session of their own costs each of them 0.1 CPU seconds."""
    return boto3.Session()


def _ask(given: dict[str, Any], call: str, **arguments: Any) -> None:
    """Make a call of boto3's client. Raises OSError with Arrow's words, which ``pyiceberg_errors`` knows."""
    verify, proxies = connection_options(given.get(CA_BUNDLE, ""), given.get("s3.proxy-uri", ""))
    style: Literal["virtual", "path"] = "virtual" if given["s3.force-virtual-addressing"] == "true" else "path"
    with _ONE_AT_A_TIME:  # a session is not safe for threads; its clients are
        client: Any = _session().client(
            "s3",
            aws_access_key_id=given["s3.access-key-id"],
            aws_secret_access_key=given["s3.secret-access-key"],
            aws_session_token=given.get("s3.session-token"),
            region_name=given["s3.region"],
            endpoint_url=given.get("s3.endpoint"),
            verify=verify,
            config=Config(
                s3={"addressing_style": style},
                proxies=proxies,
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    try:
        getattr(client, call)(**arguments)
    except (ClientError, BotoCoreError) as error:
        raise OSError(f"AWS Error: {error}") from error
    finally:
        client.close()
