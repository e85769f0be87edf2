"""The cluster of the page "Use a Spark cluster", from the page's own blocks, and a deployment that uses it."""

import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogs.postgres import PASSWORD, USER, postgres
from tests.faults import FaultProxy
from tests.pages import blocks
from tests.spark_cluster.deployment import Deployment, Shown, driver_environment, watching
from tests.spark_cluster.nodes import SparkCluster, spark_cluster
from tidemark.installation import PROJECT
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

PAGE = PROJECT / "docs" / "how-to" / "use-a-spark-cluster.md"
PLACE = "/opt/tidemark/python"
EXECUTOR_MEMORY = "512m"


def block(text: str) -> str:
    """The page's block with this title, or the one with this line of shell."""
    (found,) = (item for item in blocks(PAGE) if item.title == text or (item.language == "sh" and text in item.text))
    return found.text


def run_commands(text: str) -> None:
    """Run a block of commands with the project's own uv."""
    own = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-euc", text], cwd=PROJECT, env=own, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_python(python: Path, folder: Path) -> None:
    """As on the page, in another place."""
    text = block("uv venv").replace(PLACE, shlex.quote(str(folder)))
    run_commands(text.replace("--python 3.11", f"--python {shlex.quote(str(python))}"))


def config(cluster: SparkCluster, title: str = "tidemark.toml") -> str:
    """The page's settings for this cluster, with small executors."""
    text = block(title).replace("spark://MASTER:7077", cluster.url).replace('"2g"', f'"{EXECUTOR_MEMORY}"')
    return text.replace(PLACE, str(cluster.folder / "python"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    umask, master, worker = block("deploy.master.Master").splitlines()
    assert umask == "umask 077"  # as ``spark_cluster`` starts them
    defaults = block("spark-defaults.conf").replace("SECRET", secrets.token_hex(32))
    with spark_cluster(defaults, master=master, worker=worker, make_python=make_python) as running:
        yield running


@pytest.fixture(scope="module")
def deployment(
    stack: LocalStack, settings: Settings, cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Its tables are in a catalog on PostgreSQL."""
    folder = tmp_path_factory.mktemp("driver")
    words = (settings.s3_access_key, settings.s3_secret_key)
    with postgres() as url, FaultProxy(str(settings.s3_endpoint)) as proxy:
        catalog = {
            "TIDEMARK_CATALOG_URI": url,
            "TIDEMARK_CATALOG_PROPERTIES": json.dumps({"jdbc.user": USER, "jdbc.password": PASSWORD}),
            "TIDEMARK_NAMESPACE": "on_cluster",
        }
        environment = driver_environment(stack, cluster, folder, proxy, config(cluster), catalog)
        shown = Shown(
            cluster=cluster,
            folders=(folder / "events",),
            words=(*(word.get_secret_value().encode() for word in words), PASSWORD.encode()),
        )
        with watching(shown):
            yield Deployment(cluster=cluster, folder=folder, proxy=proxy, environment=environment, shown=shown)
