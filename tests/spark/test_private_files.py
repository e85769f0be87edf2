"""Only the user that runs Spark can read the records in its local files."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidemark.installation import PROJECT
from tidemark.spark import session

pytestmark = pytest.mark.conformance(61)


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """The usual umask, by which everybody may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


@pytest.mark.usefixtures("_open_umask")
def test_a_session_starts_with_a_private_umask_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: seen.append(umask()))
    session._start("private", {})
    assert (seen, umask()) == ([0o077], 0o022)

    def fail(_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(RuntimeError):
        session._start("private", {})
    assert umask() == 0o022


def test_the_package_starts_spark_sessions_in_one_place_only() -> None:
    calls = [
        path.relative_to(PROJECT)
        for folder in ("include", "spark_apps", "dags", "plugins")
        for path in (PROJECT / folder).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "getOrCreate" in line or "newSession" in line
    ]
    assert calls == [Path("include/tidemark/spark/session.py")]


@pytest.mark.usefixtures("_open_umask")
@pytest.mark.parametrize(
    ("mode", "mask", "warns"),
    [("client", 0o022, True), ("client", 0o027, True), ("client", 0o077, False), ("cluster", 0o022, False)],
)
def test_files_that_spark_submit_leaves_open_are_a_warning(
    caplog: pytest.LogCaptureFixture, mode: str, mask: int, warns: bool
) -> None:
    os.umask(mask)
    with caplog.at_level(logging.WARNING):
        session._warn_of_open_files(mode)
    assert [f"has umask {mask:03o}" in record.getMessage() for record in caplog.records] == [True] * warns
    assert umask() == mask


PROGRAM = """\
import json, os, stat, sys
from pyspark import StorageLevel
from tidemark.spark.session import bare_session
from tidemark.spark.java import jvm
os.umask(0o022)
spark = bare_session("private", master="local[2]")
rows = spark.range(1000).repartition(4).persist(StorageLevel.DISK_ONLY)
rows.count()
rows.mapInArrow(lambda batches: batches, "id long").count()
made = jvm(spark).java.io.File.createTempFile("s3fileio-", ".tmp")  # as Iceberg stages a table's file
folders = [*jvm(spark).org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString()]
paths = [made.getAbsolutePath(), *folders]
for folder in folders:
    for parent, below, files in os.walk(folder):
        paths += [os.path.join(parent, name) for name in [*below, *files]]
print(json.dumps({path: stat.S_IMODE(os.stat(path).st_mode) for path in paths}))
os.unlink(made.getAbsolutePath())
spark.stop()
"""


def test_no_file_that_spark_writes_on_local_disk_can_be_read_by_others(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include"), "SPARK_LOCAL_DIRS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    modes: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    kinds = {name.split("_")[0] for name in (Path(path).name for path in modes)}
    assert {"shuffle", "rdd"} <= kinds
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


STEP = """\
import os
from unittest.mock import patch
from tidemark.connections.spark import DEFAULT_SIZES
from tidemark.settings import Settings
from tidemark_airflow import submit
from tidemark_airflow.spark_job import SparkJob
os.umask(0o022)
settings = Settings.model_validate({"kafka_bootstrap": "h:1", "bucket": "lake", "catalog_uri": "jdbc:sqlite:c"})
job = SparkJob(name="n", file="f.py", arguments=(), sizes=DEFAULT_SIZES, settings=settings)
step = submit.ClientStep(task_id="maintain", step="maintain", stream="flights")
with patch("tidemark.spark.conf.jars", return_value=""), patch.object(submit, "find"):
    step.prepare(job)
print(oct(os.umask(0)))
"""


def test_a_step_in_airflow_gives_spark_submit_a_private_umask(tmp_path: Path) -> None:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEMARK_", "AIRFLOW"))}
    done = subprocess.run(
        [sys.executable, "-c", STEP],
        cwd=PROJECT,
        env={**inherited, "PYTHONPATH": str(PROJECT / "include"), "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0o77"
