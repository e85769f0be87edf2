"""Spark's classes in a shared archive, which its JVMs map instead of loading and verifying each: a start costs 6 CPU
seconds less. See JEP 350, dynamic class-data sharing.

A JVM for which the archive does not fit starts as ever. ``make classes`` makes the archive; who starts Spark without it
makes it first.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from tidemark.spark.java_command import java_command
from tidemark.stack.java import BRIEF_JVM

# What the JVM says of its archive would come between the lines that a test reads.
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
_FILL = "fill"  # the argument of the program whose classes the archive has
_OPTIONS = "SPARK_SUBMIT_OPTS"  # of Spark's own JVMs, and no others


def spark_options(temporary: Path) -> dict[str, str]:
    """The environment of programs that start Spark. The first call of an installation takes half a minute.

    Their JVMs keep temporary files below ``temporary``: one that is killed leaves its copies of all jars there.
    """
    own = f"-Djava.io.tmpdir={temporary}"
    java = Path(java_command()).resolve()
    spark = Path(pyspark.__file__).resolve()
    parts = (java, java.stat().st_mtime_ns, spark, pyspark.__version__, BRIEF_JVM, Path(__file__).read_text())
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    folder = Path(sys.prefix).resolve() / "spark-classes"  # beside Spark: it is of that installation, wherever linked
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{name}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the test processes start at the same moment
        if not archive.exists():
            for old in folder.glob("*.jsa*"):
                old.unlink()
            if not _fill(archive):  # a Java without such archives
                return {_OPTIONS: own}
    return {_OPTIONS: f"-XX:SharedArchiveFile={archive} {_QUIET} {own}"}


def _fill(archive: Path) -> bool:
    unfinished = archive.with_suffix(".jsa.new")
    options = {**BRIEF_JVM, _OPTIONS: f"-XX:ArchiveClassesAtExit={unfinished} {_QUIET}"}
    ended = subprocess.run([sys.executable, __file__, _FILL], env={**os.environ, **options}, check=False, timeout=600)
    if ended.returncode != 0 or not unfinished.exists():
        return False
    unfinished.rename(archive)
    return True


def _use_spark() -> None:
    """What most applications do: rows from Python and into it, Parquet, a join, a stream."""
    from tidemark.spark.session import bare_session

    spark = bare_session("shared-classes", master="local[2]", driver_memory="1g")

    def count(frame: DataFrame, _batch: int) -> None:
        frame.groupBy("n").count().collect()

    with TemporaryDirectory() as folder:
        rows = spark.createDataFrame([(n, f"{n}", b"") for n in range(10)], "n long, text string, bytes binary")
        rows.mapInArrow(lambda batches: batches, rows.schema).write.parquet(f"{folder}/rows")
        stored = spark.read.parquet(f"{folder}/rows")
        numbers = spark.range(5).withColumnRenamed("id", "n")
        stored.join(numbers, "n", "left").dropDuplicates(["text"]).orderBy("n").collect()
        stream = spark.readStream.schema(stored.schema).parquet(f"{folder}/rows").writeStream.foreachBatch(count)
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
    _end(spark)


def _end(spark: SparkSession) -> None:
    """Stop the session and its JVM, which writes the archive when it ends by itself."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


if __name__ == "__main__":
    if sys.argv[1:] == [_FILL]:
        _use_spark()
    else:
        spark_options(Path())
