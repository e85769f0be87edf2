"""Supervision of small programs: readiness, deaths, restarts, order, and the end of a killed supervisor's processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.waiting import wait_until
from tidemark.connections.kafka import KafkaConnection
from tidemark.core.errors import ServiceError, StackError
from tidemark.installation import PROJECT
from tidemark.stack import streams
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed, Processes

pytestmark = pytest.mark.services
FLIGHTS = PROJECT / "include" / "streams"
SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.stop(grace_s=5)


def start(processes: Processes, log: Path, code: str = SLEEPER, *, name: str = "app", timeout_s: float = 30) -> Managed:
    """Start a Python program that is ready after it has written a line."""
    before = log.stat().st_size if log.exists() else 0
    argv = [sys.executable, "-c", code]
    ready: Callable[[], bool] = lambda: log.stat().st_size > before  # noqa: E731 - one expression, used once
    return processes.start(name, argv, env={"GREETING": "hello"}, ready=ready, timeout_s=timeout_s, log=log)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_process_gets_its_variables_and_not_another_deployments(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_BUCKET", "production")
    code = (
        "import os, time; print(os.environ['GREETING'], os.environ.get('TIDEMARK_BUCKET'), flush=True); time.sleep(600)"
    )
    managed = start(processes, tmp_path / "logs" / "app.log", code)
    assert managed.log.read_text() == "hello None\n"
    assert managed.returncode is None
    processes.check()


def test_a_process_that_ends_before_it_is_ready_is_reported_with_code_and_log(
    processes: Processes, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    argv = [sys.executable, "-c", "print('no disk left'); raise SystemExit(3)"]
    with pytest.raises(StackError) as caught:
        processes.start("app", argv, env={}, ready=lambda: False, timeout_s=30, log=log)
    assert caught.value.problem == "a process ended before it was ready"
    assert caught.value.found == "app: exit code 3"
    assert caught.value.where == f"log: {log}"
    assert "no disk left" in str(caught.value.hint)
    assert list(processes) == []


def test_a_process_that_is_never_ready_is_stopped_when_its_time_is_up(processes: Processes, tmp_path: Path) -> None:
    pids: list[int] = []

    def never() -> bool:
        text = log.read_text() if log.exists() else ""
        pids.extend(int(line) for line in text.split() if int(line) not in pids)
        return False

    log = tmp_path / "app.log"
    argv = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
    with pytest.raises(StackError, match="not ready within 3 s: found app: still running"):
        processes.start("app", argv, env={}, ready=never, timeout_s=3, log=log)
    assert len(pids) == 1
    assert not alive(pids[0])


@pytest.mark.conformance(64)
def test_the_wait_for_a_process_ends_at_once_when_an_essential_one_has_died(
    processes: Processes, tmp_path: Path
) -> None:
    log = tmp_path / "kafka.log"
    argv = [sys.executable, "-c", "print('the last words', flush=True); " + SLEEPER]
    kafka = processes.start(
        "kafka", argv, env={}, ready=lambda: log.stat().st_size > 0, timeout_s=30, log=log, essential=True
    )

    def never() -> bool:
        os.kill(kafka.pid, signal.SIGKILL)
        return False

    with pytest.raises(StackError) as caught:  # not after its time, which is longer than that of this test
        processes.start(
            "stream", [sys.executable, "-c", SLEEPER], env={}, ready=never, timeout_s=7200, log=tmp_path / "stream.log"
        )
    assert str(caught.value) == (
        f"a process of the local stack died: found kafka: ended by signal SIGKILL [log: {log}]."
        " Its last log lines:\nthe last words\nup"
    )


@pytest.mark.conformance(64)
def test_a_dead_broker_is_named_where_a_streams_topic_cannot_be_created(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start(processes, tmp_path / "kafka.log", name="kafka")

    def refuse(*_: object, **__: object) -> None:
        if broker.died:
            raise ServiceError("Kafka refused a call")
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: broker.died, "the broker is dead")
        refuse()

    monkeypatch.setattr(streams, "ensure_topic", refuse)
    monkeypatch.setattr(
        LocalStack, "settings", SimpleNamespace(streams_dir=FLIGHTS, kafka=KafkaConnection.plain("127.0.0.1:1"))
    )
    monkeypatch.setattr(LocalStack, "processes", processes)
    with pytest.raises(StackError, match="died: found kafka: ended by signal SIGKILL"):
        streams.start_streams(LocalStack("any", root=tmp_path), ["flights"])


def test_a_program_that_does_not_exist_is_named(processes: Processes, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"could not be started: found .*no-such-program"):
        processes.start("app", ["no-such-program"], env={}, ready=lambda: True, timeout_s=5, log=tmp_path / "log")


def test_a_death_is_reported_by_check_until_the_process_is_restarted(processes: Processes, tmp_path: Path) -> None:
    managed = start(processes, tmp_path / "app.log")
    first = managed.pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: managed.died, "the process is seen to be dead")
    with pytest.raises(StackError, match="a process of the local stack died: found app: ended by signal SIGKILL"):
        processes.check()
    managed.restart()
    processes.check()
    assert managed.pid != first
    assert alive(managed.pid)


def test_a_process_killed_on_purpose_does_not_count_as_dead(processes: Processes, tmp_path: Path) -> None:
    managed = start(processes, tmp_path / "app.log")
    managed.kill()
    assert managed.returncode == -signal.SIGKILL
    processes.check()


def test_stopping_ends_grandchildren_with_a_process_group_of_their_own(processes: Processes, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], process_group=0)\n"
        "print(child.pid, flush=True); time.sleep(600)\n"
    )
    managed = start(processes, tmp_path / "app.log", code)
    grandchild = int(managed.log.read_text())
    assert alive(grandchild)
    managed.stop(grace_s=10)
    assert not alive(grandchild)
    assert managed.returncode == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(processes: Processes, tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    managed = start(processes, tmp_path / "app.log", code)
    managed.stop(grace_s=0.3)
    assert managed.returncode == -signal.SIGKILL


def test_processes_stop_in_reverse_order(processes: Processes, tmp_path: Path) -> None:
    order = tmp_path / "order"
    for name in ("first", "second", "third"):
        code = (
            "import signal, sys, time\n"
            f"def leave(*_):\n    open({str(order)!r}, 'a').write({name!r} + ' ')\n    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, leave)\n"
            "print('up', flush=True); time.sleep(600)\n"
        )
        start(processes, tmp_path / f"{name}.log", code, name=name)
    processes.stop()
    assert order.read_text() == "third second first "
    assert list(processes) == []


def test_a_killed_supervisor_leaves_no_process_even_after_its_guard_was_killed(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys, psutil
from pathlib import Path
from tidemark.stack.processes import Processes
processes = Processes()
folder = Path({str(tmp_path)!r})
def run(name):
    log = folder / name
    argv = [sys.executable, "-c", {SLEEPER!r}]
    return processes.start(name, argv, env={{}}, ready=lambda: log.stat().st_size > 0, timeout_s=30, log=log)
one = run("one")
guard = next(child for child in psutil.Process().children() if child.pid != one.pid)
guard.kill()
guard.wait()
print(one.pid, run("two").pid, flush=True)
signal.pause()
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "include")}
    supervisor = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    assert supervisor.stdout is not None
    pids = [int(word) for word in supervisor.stdout.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    supervisor.kill()
    supervisor.communicate()
    wait_until(lambda: not any(alive(pid) for pid in pids), "the guard has ended both")
