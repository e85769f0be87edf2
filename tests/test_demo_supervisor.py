"""How the demo supervises its processes, and how it ends without an essential one."""

import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from tests.waiting import wait_until
from tidemark.core.errors import DisplacedError, ServiceError, StackError
from tidemark.demo import run
from tidemark.demo.scenes import Demo
from tidemark.demo.show import Show
from tidemark.demo.supervise import RESTARTS_MAX, Supervisor
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed, Processes

pytestmark = pytest.mark.services
SLEEPER = "import time; time.sleep(600)"


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.stop(grace_s=1)


@pytest.fixture
def printed() -> io.StringIO:
    return io.StringIO()


def supervisor(processes: Processes, printed: io.StringIO, *, limit_s: float = 60) -> Supervisor:
    show = Show(Console(file=printed, width=200))
    return Supervisor(processes, show, essential=frozenset({"kafka"}), deadline=time.monotonic() + limit_s)


def start(processes: Processes, name: str, program: str, folder: Path) -> Managed:
    argv = [sys.executable, "-c", program]
    return processes.start(name, argv, env={}, ready=lambda: True, timeout_s=10, log=folder / f"{name}.log")


def test_a_process_that_keeps_dying_is_restarted_and_then_reported(
    processes: Processes, printed: io.StringIO, tmp_path: Path
) -> None:
    start(processes, "stream", "print('no luck'); raise SystemExit(3)", tmp_path)
    with pytest.raises(StackError) as raised:
        supervisor(processes, printed).until(lambda: False, "something that never comes", timeout_s=60)
    assert f"died again after {RESTARTS_MAX} restarts" in str(raised.value)
    assert "stream: exit code 3" in str(raised.value)
    assert printed.getvalue().count("restarting it") == RESTARTS_MAX
    assert (tmp_path / "stream.log").read_text(encoding="utf-8").count("no luck") == RESTARTS_MAX + 1


@pytest.mark.conformance(6)
def test_a_stream_that_another_writer_displaced_is_not_restarted(
    processes: Processes, printed: io.StringIO, tmp_path: Path
) -> None:
    start(processes, "stream", f"raise SystemExit({DisplacedError.exit_code})", tmp_path)
    with pytest.raises(StackError, match=r"another writer displaced a stream.*stream: exit code 10"):
        supervisor(processes, printed).until(lambda: False, "something that never comes", timeout_s=60)
    assert printed.getvalue() == ""


def test_the_demo_ends_at_once_without_an_essential_process(
    processes: Processes, printed: io.StringIO, tmp_path: Path
) -> None:
    start(processes, "kafka", SLEEPER, tmp_path)
    watcher = supervisor(processes, printed)
    watcher.check()
    (running,) = processes
    os.kill(running.pid, signal.SIGKILL)
    with pytest.raises(StackError, match=r"(?s)process of the local stack died.*kafka: ended by signal SIGKILL"):
        watcher.until(lambda: False, "something that never comes", timeout_s=60)
    assert printed.getvalue() == ""


def test_the_demo_waits_for_a_service_that_refuses_calls_for_a_while(
    processes: Processes, printed: io.StringIO
) -> None:
    answers = iter([ServiceError("busy"), None, "ready"])

    def ask() -> str | None:
        answer = next(answers)
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    assert supervisor(processes, printed).until(ask, "the service answers", timeout_s=60) == "ready"


@pytest.mark.parametrize(
    ("timeout_s", "limit_s", "limit"), [(0.1, 60, "within 0.1 s"), (60, 0.1, "within the demo's time limit")]
)
def test_a_time_out_names_what_was_waited_for(
    processes: Processes, printed: io.StringIO, timeout_s: float, limit_s: float, limit: str
) -> None:
    with pytest.raises(StackError) as raised:
        supervisor(processes, printed, limit_s=limit_s).until(lambda: False, "the tide turns", timeout_s=timeout_s)
    assert "the tide turns: not done in time" in str(raised.value)
    assert limit in str(raised.value)


def test_an_error_on_another_thread_ends_the_wait(processes: Processes, printed: io.StringIO) -> None:
    work: Future[None] = Future()
    work.set_exception(StackError("Airflow's database could not be made"))
    watcher = supervisor(processes, printed)
    watcher.follow(work)
    with pytest.raises(StackError, match="Airflow's database could not be made"):
        watcher.until(lambda: True, "anything", timeout_s=60)


@pytest.mark.parametrize("notices", ["the supervisor", "a client"])
def test_a_demo_without_its_broker_reports_it_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], notices: str
) -> None:
    """With programs that sleep in the servers' place; soak: the same name in tests/test_demo.py, the real ones."""
    pids: list[int] = []

    def start_stack(stack: LocalStack) -> None:
        pids.extend(start(stack.processes, name, SLEEPER, stack.logs).pid for name in ("kafka", "s3proxy"))

    def lose_the_broker(demo: Demo) -> None:
        broker, _ = demo.stack.processes
        os.kill(broker.pid, signal.SIGKILL)
        if notices == "a client":
            wait_until(lambda: broker.died, "the broker is dead")
            raise ServiceError("an event could not be sent")
        demo.supervisor.until(lambda: False, "the first events are archived", timeout_s=60)

    monkeypatch.setattr(run, "PROJECT", tmp_path)
    monkeypatch.setattr(LocalStack, "_start", start_stack)
    monkeypatch.setattr(Demo, "_open", lambda _: None)
    monkeypatch.setattr(Demo, "_start_streams", lose_the_broker)
    assert run.demo(exit_after=True) == 1
    text = capsys.readouterr().out
    assert "The demo failed: the demo cannot continue: a process of the local stack died: found kafka: ended by" in text
    assert f"kafka: ended by signal SIGKILL [log: {tmp_path}/.tidemark/demo/logs/kafka.log]" in text
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
