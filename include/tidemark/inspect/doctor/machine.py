"""This machine: Java, Spark's jars, Spark's master, time-zone data."""

import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

from tidemark import installation
from tidemark.definitions.stream import Stream
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.roles import MACHINE
from tidemark.settings import Settings
from tidemark.spark.conf import jars
from tidemark.spark.java_command import java_command

JAVA = (17, 21)
JAVA_STARTS_S = 90
_INSTALL_JAVA = "Install Java 17 or 21 (openjdk-17-jre-headless), and set JAVA_HOME to it if there are several"
# Each jar's beginning.
_JARS = ("spark-sql-kafka-0-10_", "spark-hadoop-cloud_", "spark-avro_", "iceberg-spark-runtime-", "iceberg-aws-bundle-")
_PYSPARK = (f"{MACHINE}: PySpark",)
_SAME_VERSION = "spark-sql-kafka-0-10_"


def checks_without_java(settings: Settings) -> Iterator[Probe]:
    """Checks of this machine, for any role."""
    yield Probe(subject=MACHINE, name="Java", ask=_java)
    yield Probe(subject=MACHINE, name="PySpark", ask=_pyspark)
    yield Probe(subject=MACHINE, name="Spark jars", ask=partial(_jars, settings), needs=_PYSPARK)
    yield Probe(subject=MACHINE, name="Spark", ask=partial(_spark, settings), needs=_PYSPARK)


def java_checks(streams: Sequence[Stream]) -> Iterator[Probe]:
    """The check that takes longest, because it starts Java: 3 to 20 s."""
    if streams:
        yield Probe(
            subject=MACHINE,
            name="time-zone data",
            ask=partial(_zones, streams),
            needs=(f"{MACHINE}: Java", *_PYSPARK),
            limit_s=JAVA_STARTS_S,
        )


def _pyspark(probe: Probe) -> Iterable[Checkup]:
    try:
        yield probe.ok(version("pyspark"))
    except PackageNotFoundError:
        yield probe.failed("not installed", installation.GET_SPARK)


def _java(probe: Probe) -> Iterable[Checkup]:
    command = java_command()
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=20)
    printed = (done.stderr + done.stdout).strip()
    first = next((line for line in printed.splitlines() if "version" in line), printed[:100])
    found = re.search(r'version "(?:1\.)?(\d+)', first)
    if found is None or int(found[1]) not in JAVA:
        yield probe.failed(f"{command} is {first or 'no Java'}", _INSTALL_JAVA)
    else:
        yield probe.ok(f"{first} ({command})")


def _jars(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    names = [path.rpartition("/")[2] for path in jars(settings).split(",")]
    missing = [start for start in _JARS if not any(name.startswith(start) for name in names)]
    spark = version("pyspark")
    release = spark.rpartition(".")[0]  # its repairs change no interface
    wrong = [name for name in names if name.startswith(_SAME_VERSION) and f"-{release}." not in name]
    hint = f"{installation.GET_JARS}, or set TIDEMARK_JARS_DIR to the folder that it filled, not {settings.jars_dir}"
    if missing:
        yield probe.failed(f"no jar {', '.join(f'{start}*.jar' for start in missing)} in {settings.jars_dir}", hint)
    elif wrong:
        yield probe.failed(f"{', '.join(wrong)} is not of PySpark's release {release}", hint)
    else:
        yield probe.ok(f"{len(names)} in {settings.jars_dir}")


def _spark(settings: Settings, probe: Probe) -> Iterable[Checkup]:
    """Whether the master of a standalone cluster answers."""
    master, found = settings.spark_master, f"PySpark {version('pyspark')}, master {settings.spark_master}"
    if not master.startswith("spark://"):
        yield probe.ok(found)
        return
    for address in master.removeprefix("spark://").split(","):
        host = urlsplit(f"//{address}")
        try:
            socket.create_connection((str(host.hostname), host.port or 7077), timeout=5).close()
        except OSError as error:
            yield probe.failed(f"no answer at {address}: {error}", "Start the master, or correct TIDEMARK_SPARK_MASTER")
            return
    yield probe.ok(f"{found} answers. Its workers need umask 077; Tidemark can't check that")


def _zones(streams: Sequence[Stream], probe: Probe) -> Iterable[Checkup]:
    """Java and Python each compute a row's day, and must agree."""
    from tidemark.spark.session import bare_session
    from tidemark.spark.time_zone import require_same_clocks

    spark = bare_session("tidemark-doctor")
    try:
        zones = {stream.time_zone: stream for stream in streams}
        for stream in zones.values():
            require_same_clocks(spark, stream)
    finally:
        spark.stop()
    yield probe.ok(f"Java and Python agree on {', '.join(sorted(zones))}")
