"""A standalone Spark cluster as strangers to this project: a master and workers as another user with an own Python.

Each process has its own folder and an environment of a few variables, none of Tidemark's. Where the tests run as root,
the processes belong to ``nobody``. ``NodeOwner`` says what separates them from the tests, and what does not.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import wait_until
from tidemark.spark.conf import spark_home
from tidemark.spark.java_command import java_command
from tidemark.stack.files import free_ports, write_private
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.processes import Managed, Processes

OTHER_USER = "nobody"
READY_S = 180
_PYTHON = "python{}.{}".format(*sys.version_info)
_FOLDERS = ("/usr/bin", "/usr/local/bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOwner:
    """What separates the cluster's processes from the tests. ``reason``: why their user is not another one."""

    user: str
    python: Path
    java: Path
    reason: str = ""

    @property
    def become(self) -> list[str]:
        """The start of a command that makes it the other user's."""
        if self.reason:
            return []
        group = pwd.getpwnam(self.user).pw_gid
        return ["setpriv", f"--reuid={self.user}", f"--regid={group}", "--clear-groups"]

    def give(self, path: Path) -> None:
        """Make the user the owner of a file or folder."""
        if not self.reason:
            shutil.chown(path, self.user, pwd.getpwnam(self.user).pw_gid)


def find_owner() -> NodeOwner:
    """Another user who can run Java and a Python of the tests' version; else the tests' own user, with the reason."""
    java = Path(java_command()).resolve()
    pythons = [Path(os.path.realpath(sys.executable)), *(Path(folder, _PYTHON) for folder in _FOLDERS)]
    own = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() != 0:
        return NodeOwner(user=own, python=pythons[0], java=java, reason="only root can start another user's processes")
    for python in pythons:
        other = NodeOwner(user=OTHER_USER, python=python, java=java)
        if _runs(other.become, python, "-c", "import ssl") and _runs(other.become, java, "-version"):
            return other
    tried = ", ".join(map(str, (*pythons, java)))
    return NodeOwner(
        user=own, python=pythons[0], java=java, reason=f"{OTHER_USER} can't run a Python and Java: {tried}"
    )


def _runs(become: Sequence[str], program: Path, *arguments: str) -> bool:
    command = [*become, "sh", "-c", 'test -x "$0" && exec "$0" "$@"', str(program), *arguments]
    return subprocess.run(command, cwd="/", capture_output=True, check=False).returncode == 0


class SparkCluster:
    """A running master and its workers. A test that takes one away ends with ``heal()``."""

    def __init__(self, folder: Path, owner: NodeOwner, processes: Processes, ports: tuple[int, int]) -> None:
        self.folder, self.owner = folder, owner
        self.port, self._ui_port = ports
        self._processes = processes
        self.master: Managed
        self.workers: list[Managed] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def python(self) -> Path:
        """The executors' Python, which ``make_python`` made."""
        return self.folder / "python" / "bin" / "python"

    def start(self, defaults: str, master: str, worker: str, workers: int) -> None:
        """``defaults``: the text of spark-defaults.conf; ``master`` and ``worker``: commands as for a shell."""
        for name in ("conf", "recovery"):
            (self.folder / name).mkdir()
            self.owner.give(self.folder / name)
        conf = self.folder / "conf" / "spark-defaults.conf"
        write_private(conf, defaults)
        self.owner.give(conf)
        master = master.replace("7077", str(self.port)).replace("8080", str(self._ui_port))
        self.master = self._start("master", master, ready=self._answers)
        for number in range(1, workers + 1):  # together: each takes some seconds
            own = worker.replace("MASTER:7077", f"127.0.0.1:{self.port}")
            self.workers.append(self._start(f"worker-{number}", f"{own} --webui-port 0", ready=lambda: True))
        self.heal()

    def _start(self, name: str, command: str, *, ready: Callable[[], bool]) -> Managed:
        folder = self.folder / name
        for part in (folder, folder / "local"):
            part.mkdir()
            self.owner.give(part)
        clean = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "JAVA_HOME": str(self.owner.java.parent.parent),
            "SPARK_HOME": str(self.folder / "spark"),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            **BRIEF_JVM,
        }
        variables = [f"{key}={value}" for key, value in clean.items()]
        text = command.replace("/var/lib/spark/work", str(folder / "work"))
        for host in ("MASTER", "WORKER"):
            text = text.replace(host, "127.0.0.1")
        return self._processes.start(
            name,
            [*self.owner.become, "env", "-i", *variables, "sh", "-c", f"umask 077; exec {text}"],
            env={},
            ready=ready,
            timeout_s=READY_S,
            log=folder / "log",
            cwd=folder,
        )

    def state(self) -> dict[str, Any]:
        """What the master's page says, as JSON."""
        found: dict[str, Any] = json.loads(page(f"http://127.0.0.1:{self._ui_port}/json/"))
        return found

    def cores(self) -> dict[str, int]:
        """Cores that each running application has, by the application's name."""
        return {app["name"]: app["cores"] for app in self.state()["activeapps"]}

    def pages(self) -> dict[str, bytes]:
        """The pages of master and workers, by address."""
        roots = [f"http://127.0.0.1:{self._ui_port}", *(item["webuiaddress"] for item in self.state()["workers"])]
        apps = [f"{roots[0]}/app/?appId={app['id']}" for kind in ("active", "completed")
            for app in self.state()[f"{kind}apps"]]  # fmt: skip
        return {address: page(address) for address in (*roots, *apps)}

    def members(self) -> Iterator[psutil.Process]:
        """Every process of master, workers and executors, with the executors' Python."""
        sessions = {item.pid for item in (self.master, *self.workers)}
        for number in psutil.pids():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(number) in sessions:
                    yield psutil.Process(number)

    def executors(self) -> list[psutil.Process]:
        """The executors' Java processes."""
        found = []
        for process in self.members():
            with suppress(psutil.Error):
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def worker_at(self, port: int) -> Managed:
        """A worker with a task that is connected to this port of 127.0.0.1 right now."""
        for process in self.members():
            with suppress(psutil.Error, ProcessLookupError):
                if any(tuple(one.raddr)[1:] == (port,) for one in process.net_connections("tcp")):
                    session = os.getsid(process.pid)
                    return next(item for item in self.workers if item.pid == session)
        raise AssertionError(f"no process of the cluster is connected to port {port}")

    def heal(self) -> None:
        """Start whatever was killed, and wait until the master counts every worker."""
        for member in (self.master, *self.workers):
            if member.returncode is not None:
                member.launch()
        wait_until(self._complete, "every worker is registered", READY_S, every_s=0.2)

    def files(self) -> Iterator[Path]:
        """Everything that the processes wrote: logs, folders of applications and shuffles, the master's memory."""
        for name in ("master", *(item.name for item in self.workers), "recovery"):
            yield from (path for path in (self.folder / name).rglob("*") if path.suffix != ".jar")

    def _answers(self) -> bool:
        with suppress(OSError):
            return bool(self.state()["status"] == "ALIVE")
        return False

    def _complete(self) -> bool:
        with suppress(OSError):
            states = [item["state"] for item in self.state()["workers"]]
            return states.count("ALIVE") == len(self.workers)
        return False


def page(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - pages of the cluster
        return bytes(answer.read())


def link_or_copy(source: str, target: str) -> None:
    """A second name for a file, which costs nothing, or a copy of it on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def spark_cluster(
    defaults: str, *, master: str, worker: str, make_python: Callable[[Path, Path], None], workers: int = 2
) -> Iterator[SparkCluster]:
    """Start it in a temporary folder, which is removed at the end, with the processes.

    ``make_python`` makes the executors' environment in a folder, from a Python that the nodes have.
    """
    owner = find_owner()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-spark-"))
    processes = Processes()
    try:
        folder.chmod(0o755)
        shutil.copytree(spark_home(), folder / "spark", copy_function=link_or_copy)
        make_python(owner.python, folder / "python")
        first, second = free_ports(2)
        running = SparkCluster(folder, owner, processes, (first, second))
        running.start(defaults.replace("/var/lib/spark/recovery", str(folder / "recovery")), master, worker, workers)
        yield running
    finally:
        processes.stop(grace_s=1)
        shutil.rmtree(folder)
