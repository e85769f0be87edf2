"""Tidemark's programs as drivers of a Spark cluster, and everything that could show a secret of theirs."""

import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults import FaultProxy
from tests.spark_cluster.nodes import SparkCluster, page
from tests.speed.live import SpeedApp, started
from tidemark.installation import PROJECT, TIDEMARK
from tidemark.settings import Settings, resolve
from tidemark.stack.files import write_private
from tidemark.stack.local import LocalStack

UI_PAGES = ("jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery")
SAMPLED_EVERY_S = 0.5
ENDS_S = 900  # a run starts a dozen JVMs and Pythons, and tries again what a killed worker did
# A driver of a test has its pages and its event log, as a deployment may want them.
PAGES_ON = '\n[prod.spark.conf]\n"spark.ui.enabled" = "true"\n"spark.ui.port" = "0"\n'


@dataclass(kw_only=True)
class Deployment:
    """The variables of each driver, its settings, and the proxy through which drivers and executors reach S3."""

    cluster: SparkCluster
    folder: Path
    proxy: FaultProxy
    environment: Mapping[str, str]
    shown: "Shown"

    @property
    def settings(self) -> Settings:
        return resolve(variables={**os.environ, **self.environment}).settings

    @property
    def s3_port(self) -> int:
        return int(self.proxy.url.rpartition(":")[2])

    def app(self, program: str, *arguments: str, changes: Mapping[str, str] = {}) -> AbstractContextManager[SpeedApp]:
        """An application of ``spark_apps``, a module of the tests, or a command of ``tidemark``.

        It is killed at the end if it still runs.
        """
        command = [sys.executable, str(PROJECT / "spark_apps" / program)] if program.endswith(".py") else [*TIDEMARK]
        if program.startswith("tests."):
            command = [sys.executable, "-m", program]
        log = self.folder / f"{'-'.join((program, *arguments)).replace('/', '-')}.log"
        log.unlink(missing_ok=True)
        words = arguments if program.endswith(".py") or program.startswith("tests.") else (program, *arguments)
        return started([*command, *words], log, {**self.environment, **changes})

    def run(self, program: str, *arguments: str, changes: Mapping[str, str] = {}, code: int = 0) -> str:
        """Run it to its end, which must have this exit code, and return what it printed."""
        with self.app(program, *arguments, changes=changes) as app:
            assert app.process.wait(ENDS_S) == code, app.output
            return app.output


def driver_environment(
    stack: LocalStack, cluster: SparkCluster, folder: Path, proxy: FaultProxy, config: str, catalog: Mapping[str, str]
) -> dict[str, str]:
    """Write a driver's files: its settings and Spark's properties, and return the variables that name them."""
    conf, events = folder / "conf", folder / "events"
    events.mkdir()
    given = (cluster.folder / "conf" / "spark-defaults.conf").read_text(encoding="utf-8")
    log = f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\nspark.eventLog.compress false\n"
    write_private(conf / "spark-defaults.conf", given + log)
    write_private(folder / "tidemark.toml", config + PAGES_ON)
    return {
        **stack.env,
        **catalog,
        "SPARK_CONF_DIR": str(conf),
        "TIDEMARK_CONFIG": str(folder / "tidemark.toml"),
        "TIDEMARK_PROFILE": "prod",
        "TIDEMARK_S3_ENDPOINT": proxy.url,
    }


# They still have the tests' user and variables, and become the cluster's processes without them.
LAUNCHERS = {"setpriv", "env"}


@dataclass(kw_only=True)
class Shown:
    """Reads what the cluster shows, all the time, and remembers where one of the ``words`` was."""

    cluster: SparkCluster
    folders: Sequence[Path]
    words: Sequence[bytes]
    where: set[str] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    users: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Until ``end``: processes each half second, and files and pages every tenth time."""
        number = 0
        while not self._over.wait(SAMPLED_EVERY_S):
            self._read_processes()
            if number % 10 == 0:
                self.read_files()
                self.read_pages()
            number += 1

    def end(self) -> None:
        self._over.set()

    def _note(self, kind: str, name: str, data: bytes) -> None:
        self.seen[kind] += 1
        if any(word in data for word in self.words):
            self.where.add(f"{kind}: {name}")

    def _read_processes(self) -> None:
        for process in self.cluster.members():
            with suppress(psutil.Error, OSError):
                if process.name() in LAUNCHERS:
                    continue
                name = f"{process.pid} {process.name()}"
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                self._note("environment", name, environment)
                self.users.add(process.username())
                self.variables |= {item.partition(b"=")[0].decode() for item in environment.split(b"\0")}
                self._note("command line", name, Path(f"/proc/{process.pid}/cmdline").read_bytes())

    def read_files(self) -> None:
        """Files that are new or have grown."""
        for path in (*self.cluster.files(), *(path for folder in self.folders for path in folder.rglob("*"))):
            with suppress(OSError):  # executors remove theirs
                if path.is_file() and self._sizes.get(path) != (size := path.stat().st_size):
                    self._sizes[path] = size
                    self._note("file", str(path), path.read_bytes())

    def read_pages(self) -> None:
        """The pages of master, workers and running applications."""
        with suppress(OSError):
            found = self.cluster.pages()
            for address, data in found.items():
                self._note("page", address, data)
            for root in set(
                re.findall(r'href="(http://[^"]+)">Application Detail UI', b"".join(found.values()).decode())
            ):
                for name in UI_PAGES:
                    with suppress(OSError):
                        self._note("application page", f"{root}/{name}/", page(f"{root}/{name}/"))


@contextmanager
def watching(shown: Shown) -> Iterator[Shown]:
    thread = threading.Thread(target=shown.watch, name="shown")
    thread.start()
    try:
        yield shown
    finally:
        shown.end()
        thread.join()
