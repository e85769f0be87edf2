"""A YARN of one node, from Hadoop's own jars. Its applications share nothing with the tests but the machine."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tidemark.installation import PROJECT
from tidemark.spark.conf import spark_home
from tidemark.spark.java_command import java_command
from tidemark.stack.files import free_ports
from tidemark.stack.java import java_argv
from tidemark.stack.processes import Processes

JARS = PROJECT / ".tidemark" / "yarn"
READY_S = 240
_SERVER = "org.apache.hadoop.yarn.server"
_LOG4J = """\
log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """A running cluster: the URL of its resource manager, its configuration, and the folder of everything it writes."""

    url: str
    conf: Path
    data: Path

    def applications(self, name: str) -> list[dict[str, Any]]:
        """What the resource manager reports about the applications of this name."""
        found = httpx.get(f"{self.url}/ws/v1/cluster/apps", timeout=30).json()["apps"] or {"app": []}
        return [app for app in found["app"] if app["name"] == name]


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """Start both servers, and stop them at the end."""
    _fetch()
    ports = free_ports(8)
    found = Yarn(url=f"http://127.0.0.1:{ports[0]}", conf=folder / "conf", data=folder / "data")
    found.conf.mkdir(parents=True)
    (found.conf / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
    own = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(found.data / "tmp")}
    _write(found.conf / "core-site.xml", own)
    _write(found.conf / "yarn-site.xml", _site(found.data, ports))
    processes = Processes()
    try:
        for name, main in (("resourcemanager", "ResourceManager"), ("nodemanager", "NodeManager")):
            argv = java_argv(JARS, f"{_SERVER}.{name}.{main}", heap="256m", properties={}, more=[found.conf])
            argv[1:1] = ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
            processes.start(
                name,
                argv,
                env={"HADOOP_CONF_DIR": str(found.conf)},
                ready=lambda name=name: _is_ready(found.url, nodes=int(name == "nodemanager")),  # type: ignore[misc]
                timeout_s=READY_S,
                log=folder / f"{name}.log",
                cwd=folder,
            )
        yield found
    finally:
        processes.stop()


def _fetch() -> None:
    if any(JARS.glob("hadoop-yarn-client-*.jar")):
        return
    ivy = next((spark_home() / "jars").glob("ivy-*.jar"))
    arguments = ["-warn", "-ivy", str(Path(__file__).with_name("ivy.xml")), "-retrieve"]
    pattern = f"{JARS}/[artifact]-[revision](-[classifier]).[ext]"
    subprocess.run([java_command(), "-jar", str(ivy), *arguments, pattern], check=True, stdout=subprocess.DEVNULL)


def _is_ready(url: str, *, nodes: int) -> bool:
    try:
        found = httpx.get(f"{url}/ws/v1/cluster/metrics", timeout=10).json()["clusterMetrics"]
    except (httpx.HTTPError, ValueError):
        return False
    return int(found["activeNodes"]) >= nodes


def _site(data: Path, ports: tuple[int, ...]) -> dict[str, str]:
    web, scheduler, tracker, clients, admin, node, localizer, node_web = (f"127.0.0.1:{port}" for port in ports)
    return {
        "yarn.resourcemanager.bind-host": "127.0.0.1",
        "yarn.resourcemanager.webapp.address": web,
        "yarn.resourcemanager.scheduler.address": scheduler,
        "yarn.resourcemanager.resource-tracker.address": tracker,
        "yarn.resourcemanager.address": clients,
        "yarn.resourcemanager.admin.address": admin,
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.nodemanager.address": node,
        "yarn.nodemanager.localizer.address": localizer,
        "yarn.nodemanager.webapp.address": node_web,
        "yarn.nodemanager.local-dirs": str(data / "local"),
        "yarn.nodemanager.log-dirs": str(data / "logs"),
        # What an application got, and wrote, is there to be searched for secrets.
        "yarn.nodemanager.delete.debug-delay-sec": "3600",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME",
        "yarn.scheduler.minimum-allocation-mb": "128",
    }


def _write(path: Path, properties: dict[str, str]) -> None:
    entries = (f"<property><name>{name}</name><value>{text}</value></property>" for name, text in properties.items())
    path.write_text(f"<configuration>{os.linesep.join(entries)}</configuration>", encoding="utf-8")
