"""Read exactly the listed objects, without a request per object.

Spark takes the list from a ``_spark_metadata`` log, the file that its own file sink writes beside its output. Spark
reads such logs of earlier versions, but documents no way to write one. The public ``read.parquet(*paths)`` asks S3 for
every path: for 2,000 objects of the local stack that takes 18 s before the job starts, the list takes 0.1 s. A filter
of a folder's files would compare the path of every row. tests/spark/test_private_apis.py fails when Spark's version
changes, and names what to check.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.core.days import micros
from tidemark.core.errors import IncompleteError
from tidemark.s3 import ObjectInfo
from tidemark.spark.java import java_frame, jvm

PROVEN_WITH = "4.0.4"  # the version of Spark
# Characters that Hadoop keeps when it turns a path into the URI in `_metadata.file_path`.
_PLAIN = re.compile(r"[A-Za-z0-9_\-!.~'()*,;:$&+=/@]*")


def read_files(spark: SparkSession, schema: StructType, bucket: str, files: Iterable[ObjectInfo]) -> DataFrame:
    """All rows of exactly these Parquet objects, each read once; an IncompleteError if Spark does not take all."""
    listed = {item.key: item for item in files}
    log = ["v1", *(_status(file_uri(spark, bucket, key), listed[key]) for key in sorted(listed))]
    reader = spark.read.schema(schema).option("recursiveFileLookup", True)
    with TemporaryDirectory(prefix="tidemark-files-") as folder:
        path = Path(folder, "_spark_metadata")
        path.mkdir()
        (path / "0").write_text("\n".join(log), encoding="utf-8")
        rows = reader.parquet(f"file://{folder}")  # Spark reads the log here, and never again
    found = len(java_frame(rows).inputFiles())  # DataFrame.inputFiles() calls the JVM for every file
    if found != len(listed):
        raise IncompleteError(
            "Spark does not read all listed objects",
            expected=f"{len(listed)} objects",
            found=found,
            hint="Unset spark.sql.streaming.fileStreamSink.ignoreMetadata in the session",
        )
    return rows


def file_uri(spark: SparkSession, bucket: str, key: str) -> str:
    """The object's URI as in ``_metadata.file_path``."""
    path = f"s3a://{bucket}/{key}"
    if _PLAIN.fullmatch(path):
        return path
    return str(jvm(spark).org.apache.hadoop.fs.Path(path).toUri().toString())


def _status(uri: str, item: ObjectInfo) -> str:
    """A line of the log: Spark's ``SinkFileStatus`` as JSON."""
    return json.dumps(
        {
            "path": uri,
            "size": item.size,
            "isDir": False,
            "modificationTime": micros(item.modified) // 1000,
            "blockReplication": 1,
            "blockSize": item.size,
            "action": "add",
        }
    )
