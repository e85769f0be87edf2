"""Pyiceberg's files on an S3 server whose certificate an own authority signed: pyiceberg has no setting for that."""

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

CA_BUNDLE = "tidemark.s3.ca-bundle"
S3_FILES = f"{__name__}.S3Files"


class S3Files(PyArrowFileIO):
    """Reads what ``tidemark.tables.reader.s3_properties`` describes. Its property ``CA_BUNDLE`` names a PEM file."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:  # noqa: ARG002  # the bucket
        given = self.properties
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
