"""The local stack: it is healthy after its start, keeps its data, reports what died, and leaves no process."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.conftest import MakeStream, MakeTopic, Produce
from tests.waiting import wait_until
from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.core.errors import ConfigError, StackError
from tidemark.installation import PROJECT
from tidemark.kafka.positions import watermarks
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings, resolve
from tidemark.stack.files import env_text, free_ports, write_private
from tidemark.stack.local import LocalStack, running_stacks


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def log_ends(settings: Settings, topic: str) -> list[tuple[int, int]]:
    marks = watermarks(settings.kafka, describe_topic(settings.kafka, topic))
    return [(mark.log_start, mark.high_watermark) for mark in marks]


def test_a_started_stack_serves_topics_and_objects(
    settings: Settings, store: ObjectStore, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(2)
    assert produce(topic, [(b"k", b"v", 1_700_000_000_000, 1, [("h", b"x")]), (None, None, 0, 1, [])]) == [0, 1]
    assert log_ends(settings, topic) == [(0, 0), (0, 2)]
    assert store.put_if_absent("stack/once", b"first")
    assert not store.put_if_absent("stack/once", b"second")
    assert store.get("stack/once") == b"first"


def test_a_topics_id_has_the_brokers_format(stack: LocalStack, settings: Settings, make_topic: MakeTopic) -> None:
    files = stack.folder / "kafka"

    def written(topic: str) -> set[str]:
        paths = files.rglob(f"{topic}-0/partition.metadata")
        return {line for path in paths for line in path.read_text(encoding="utf-8").splitlines()}

    topics = [make_topic() for _ in range(8)]  # one in two ids has a character that base64 encodes in two ways
    wait_until(
        lambda: all(any(line.startswith("topic_id: ") for line in written(topic)) for topic in topics),
        "the broker has written down every id",
    )
    for topic in topics:
        (log,) = describe_topic(settings.kafka, topic)
        assert f"topic_id: {log.topic_id}" in written(topic)


def test_spark_runs_on_the_stack(spark: SparkSession, make_stream: MakeStream, settings: Settings) -> None:
    stream = make_stream(partitions=2)
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka_bootstrap)
        .option("subscribe", stream.topic)
        .load()
    )
    assert rows.count() == 0
    spark.range(3).write.parquet(f"s3a://{settings.bucket}/stack/parquet")
    assert spark.read.parquet(f"s3a://{settings.bucket}/stack/parquet").count() == 3


def test_spark_submit_works_below_a_folder_with_a_space(stack: LocalStack, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    python = folder / "python"
    python.symlink_to(sys.executable)
    environment = {**os.environ, **stack.env, "PYSPARK_PYTHON": str(python)}
    command = [str(Path(sys.executable).with_name("spark-submit")), "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "version 4.0.4" in done.stderr


def test_settings_and_keys_are_in_files_only_their_owner_can_read(stack: LocalStack) -> None:
    secret = stack.settings.s3_secret_key.get_secret_value()
    # grep, because the servers' data may be gigabytes by now; it exits with 0 where it found something. Kafka's indexes
    # are numbers, in files of 10 MiB of nothing each.
    search = ["grep", "--recursive", "--exclude=*index", "--files-with-matches", "--fixed-strings", "--file=-"]
    search.append(str(stack.folder))
    found = subprocess.run(search, input=secret, capture_output=True, text=True, check=True)
    holders = [Path(line) for line in found.stdout.splitlines()]
    assert sorted(path.name for path in holders) == ["s3proxy.properties", "stack.env"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in holders} == {0o600}
    assert stat.S_IMODE(stack.folder.stat().st_mode) == 0o700
    running = [psutil.Process(managed.pid) for managed in stack.processes if managed.returncode is None]
    commands = [argument for process in running for argument in process.cmdline()]
    assert len(commands) > len(running) >= 2
    assert not any(secret in argument for argument in commands)
    assert resolve(variables={ENV_FILE_VARIABLE: str(stack.env_file)}).settings == stack.settings


def test_servers_listen_on_this_machine_only(stack: LocalStack) -> None:
    listening = {
        (managed.name, connection.laddr.ip)
        for managed in stack.processes
        if managed.returncode is None
        for connection in psutil.Process(managed.pid).net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert {ip for _, ip in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert {name for name, _ in listening} >= {"kafka", "s3proxy"}  # other tests may have added servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A stack whose supervisor was killed, with a topic and an object named ``kept``."""

    root: Path
    settings: Settings
    pids: tuple[int, ...]


@pytest.fixture(scope="module")
def orphan(tmp_path_factory: pytest.TempPathFactory) -> Orphan:
    root = tmp_path_factory.mktemp("a stack of émigrés") / "日本 # 1"
    script = (
        "import signal\nfrom pathlib import Path\nfrom tidemark.stack.local import LocalStack\n"
        f"stack = LocalStack('again', root=Path({str(root)!r}))\nstack.start()\n"
        "print(*(managed.pid for managed in stack.processes), flush=True)\nsignal.pause()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include")}
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert supervisor.stdout is not None
        pids = tuple(int(word) for word in supervisor.stdout.readline().split())
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        file = LocalStack("again", root=root).env_file
        settings = resolve(variables={ENV_FILE_VARIABLE: str(file)}).settings
        assert ensure_topic(settings.kafka, "kept", partitions=2)
        ObjectStore(settings).put("kept", b"object")
    finally:
        supervisor.kill()
        supervisor.communicate()
    return Orphan(root=root, settings=settings, pids=pids)


@pytest.fixture(scope="module")
def restarted(orphan: Orphan) -> Iterator[LocalStack]:
    """That stack, restarted at once from a shell with another deployment's variables; another server has its port."""
    stack = LocalStack("again", root=orphan.root)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", int(orphan.settings.kafka_bootstrap.rpartition(":")[2])))
        taken.listen()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TIDEMARK_BUCKET", "production")
            patch.setenv("TIDEMARK_PREFIX", "precious")
            stack.start()
        yield stack
        stack.stop()


@pytest.mark.services
def test_a_stack_whose_supervisor_was_killed_can_be_started_again_at_once(
    orphan: Orphan, restarted: LocalStack
) -> None:
    assert not any(alive(pid) for pid in orphan.pids)
    assert ObjectStore(restarted.settings).get("nothing") is None


@pytest.mark.services
def test_a_second_start_keeps_data_keys_and_all_free_ports(orphan: Orphan, restarted: LocalStack) -> None:
    first, second = orphan.settings, restarted.settings
    assert log_ends(second, "kept") == [(0, 0), (0, 0)]
    assert ObjectStore(second).get("kept") == b"object"
    assert second.kafka_bootstrap != first.kafka_bootstrap
    assert second == first.model_copy(update={"kafka_bootstrap": second.kafka_bootstrap})


@pytest.mark.services
def test_a_running_stack_is_listed_and_cannot_start_twice(orphan: Orphan, restarted: LocalStack) -> None:
    assert running_stacks(orphan.root) == ("again",)
    with pytest.raises(StackError, match=f"'again' is running already: found pid {os.getpid()} ") as caught:
        LocalStack("again", root=orphan.root).start()
    assert str(restarted.folder) in str(caught.value)


@pytest.mark.services
def test_another_deployments_variables_do_not_reach_the_stacks_settings(restarted: LocalStack) -> None:
    assert (restarted.settings.bucket, restarted.settings.prefix) == ("tidemark", "")


@pytest.mark.services
def test_a_killed_broker_is_named_with_its_log_and_restarts_with_its_data(restarted: LocalStack) -> None:
    kafka, s3 = restarted.processes
    os.kill(kafka.pid, signal.SIGKILL)
    wait_until(lambda: kafka.died, "the broker is seen to be dead")
    with pytest.raises(StackError, match="kafka: ended by signal SIGKILL") as caught:
        restarted.processes.check()
    assert str(restarted.logs / "kafka.log") in str(caught.value)
    assert s3.returncode is None
    kafka.restart()
    assert log_ends(restarted.settings, "kept") == [(0, 0), (0, 0)]


@pytest.mark.services
def test_a_stopped_stack_has_no_process_and_no_settings(orphan: Orphan, restarted: LocalStack) -> None:
    """The last test that uses the shared stack."""
    pids = [managed.pid for managed in restarted.processes]
    restarted.stop()
    assert running_stacks(orphan.root) == ()
    assert not any(alive(pid) for pid in pids)
    with pytest.raises(StackError, match="not running"):
        _ = restarted.settings


def test_missing_jars_and_java_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = LocalStack("bare", root=tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    with pytest.raises(StackError, match=r"no Java: .*make install"):
        stack.start()
    stack.jars = tmp_path / "no-jars"
    with pytest.raises(StackError, match=r"no jars: expected \*\.jar .*make install"):
        stack.start()
    assert running_stacks(tmp_path) == ()


@pytest.mark.parametrize("name", ["", "../elsewhere", "/etc", "a/b", ".", "-x"])
def test_a_name_that_is_not_a_plain_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"letters, digits, '-' and '_', found {re.escape(repr(name))}"):
        LocalStack(name, root=tmp_path)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / ".tidemark").mkdir()
    (tmp_path / ".tidemark" / "taken").write_text("", encoding="utf-8")
    with pytest.raises(
        StackError, match=f"there is a file in place of a local stack's folder .*{tmp_path}/.tidemark/taken"
    ):
        LocalStack("taken", root=tmp_path).start()


@pytest.mark.conformance(61)
def test_a_folder_that_others_could_read_is_closed_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / ".tidemark" / "open"
    folder.mkdir(parents=True, mode=0o755)
    stack = LocalStack("open", root=tmp_path)
    stack._acquire()
    stack.stop()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_wanted_ports_are_kept_in_order_and_all_ports_differ() -> None:
    (wanted,) = free_ports(1)
    first, second, third = free_ports(3, wanted=(0, wanted))
    assert second == wanted
    assert len({first, second, third}) == 3


def test_an_outgoing_connection_never_gets_a_stopped_servers_port() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="utf-8").split()[0])
    assert all(1024 < port < lowest for port in free_ports(20))


@pytest.mark.services
def test_a_claimed_port_is_free_for_no_other_process_until_its_owner_ends() -> None:
    """Even if its server does not listen yet."""
    give = "from tidemark.stack.files import free_ports; print(*free_ports(1), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", give], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        (instead,) = free_ports(1, wanted=(port,))
        assert instead != port
        assert free_ports(1, wanted=(instead,)) == (instead,)  # the process itself may get its own port again
        other.communicate(b"\n")
    assert free_ports(1, wanted=(port,)) == (port,)


def test_an_env_file_carries_any_path_and_replaces_the_old_one_privately(tmp_path: Path) -> None:
    values = {
        "TIDEMARK_KAFKA_BOOTSTRAP": "h:1",
        "TIDEMARK_S3_ACCESS_KEY": "a",
        "TIDEMARK_S3_SECRET_KEY": "it's \\ #1",
        "TIDEMARK_BUCKET": "b",
        "TIDEMARK_CATALOG_URI": "jdbc:sqlite:/a folder/x#y's.db",
    }
    file = tmp_path / "new" / "stack.env"
    write_private(file, "old")
    write_private(file, env_text(values))
    read = resolve(variables={ENV_FILE_VARIABLE: str(file)}).settings
    assert read.catalog_uri == values["TIDEMARK_CATALOG_URI"]
    assert read.s3_secret_key.get_secret_value() == values["TIDEMARK_S3_SECRET_KEY"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["stack.env"]
