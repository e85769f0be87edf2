"""The demo's scenes, in order."""

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tidemark.core.errors import StackError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import load_stream
from tidemark.demo import verify
from tidemark.demo.damage import DamagedArchive, Loss
from tidemark.demo.produce import EventLog
from tidemark.demo.reconcile import reconcile
from tidemark.demo.show import Show
from tidemark.demo.source import DAYS, Event, events, parts
from tidemark.demo.supervise import Supervisor
from tidemark.installation import EXAMPLE_STREAMS, PROJECT, SPARK_APPS, TIDEMARK
from tidemark.orchestration.steps import dag_id
from tidemark.reconcile.results import PLAN, REBUILD, final_plan
from tidemark.run import Run, run_name
from tidemark.s3 import ObjectStore
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed
from tidemark.stack.streams import APPS

NAME = "demo"
STREAM = "flights"
ESSENTIAL = frozenset({"kafka", "s3proxy", "s3-gate", "rest-catalog"})
# Ten times what a scene takes on two quiet cores: an end to waiting, and no judgement of the machine.
LIMIT_S = 75 * 60
ARCHIVED_S = 720
LIVE_S = 480
AIRFLOW_S = 600
WHERE_S = 240
# A stream finishes its batch quickly. Without Kafka or S3 it cannot, so there is no point in waiting longer.
STOP_S = 15
# Shares of the events: before the streams start, before the kill, after it, and two after the checkpoint's loss.
SHARES = (0.15, 0.25, 0.2, 0.2, 0.2)


class Demo:
    """One demo. Call ``play`` once, then ``stop``, even after an error."""

    def __init__(self, show: Show, *, root: Path, secure: bool = False) -> None:
        self._show = show
        self._root = root
        self.stack = LocalStack(NAME, root=root, streams_dir=EXAMPLE_STREAMS, fresh=True, secure=secure)
        self.airflow = LocalAirflow(self.stack, schedules=False, extra_env=BRIEF_JVM)
        self.report_file = self.stack.folder / "report.html"
        self.where_command = ""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="airflow")
        self._supervisor: Supervisor | None = None

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor. Raises StackError before the stack runs."""
        if self._supervisor is None:
            raise StackError("the demo has not started")
        return self._supervisor

    def play(self) -> bool:
        """Play every scene. Return whether all statements are true. Raises TidemarkError if a scene fails."""
        show = self._show
        with show.phase("Starting Kafka and S3"):
            self.stack.start()
            deadline = time.monotonic() + LIMIT_S
            self._supervisor = Supervisor(self.stack.processes, show, essential=ESSENTIAL, deadline=deadline)
            self._open()
        with show.phase(f"Streaming departures of {DAYS[0]} and {DAYS[1]}: Kafka → S3, Kafka → Kafka"):
            self._start_streams()
        with show.phase("Damage 1: kill -9 of the archive stream"):
            self._kill_archive()
        with show.phase("Damage 2: the archive stream loses its checkpoint"):
            self._lose_checkpoint()
        with show.phase("Damage 3: the archive loses a manifest"):
            loss = self._lose_manifest()
        with show.phase("Waiting for Airflow"):
            self._await_airflow()
        with show.phase(f"Reconciling both days: Airflow's DAG {dag_id(STREAM)}"):
            run_id = reconcile(self.airflow, STREAM, show, self.supervisor)
            run = Run.open(STREAM, run_name(run_id), self.stack.settings)
            self._save_report(run)
        with show.phase("Checking everything independently"):
            passed = self._verify(run, loss)
        with show.phase("Asking where a late record is"):
            self._where()
        return passed

    def cause(self, error: TidemarkError) -> TidemarkError:
        """The error, or the death of an essential process if that caused it."""
        return (self._supervisor and self._supervisor.essential_death()) or error

    def stop(self) -> None:
        """Stop every process. May be called at any time."""
        self.airflow.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._supervisor is not None:
            # First, and all at once, the processes that use Kafka and S3.
            users = [item for item in self.stack.processes if item.name not in ESSENTIAL]
            with ThreadPoolExecutor(max_workers=max(1, len(users))) as pool:
                list(pool.map(lambda item: item.stop(STOP_S), users))
        self.stack.stop()

    def _open(self) -> None:
        settings = self.stack.settings
        self._stream = load_stream(STREAM, settings.streams_dir)
        self._store = ObjectStore(settings)
        self._layout = Layout(prefix=settings.prefix, stream=STREAM)
        self._archive = DamagedArchive(self._store, self._layout)
        self._log = EventLog(settings.kafka, self._stream.topic)
        self._show.say(f"Kafka {settings.kafka}, S3 {settings.s3_endpoint}, logs in {self.stack.logs}")

    def _start_streams(self) -> None:
        everything = events()
        self._parts = parts(everything, SHARES)
        late, malformed = sum(item.late for item in everything), sum(item.malformed for item in everything)
        self._show.say(f"{len(everything)} events, {late} of them a day late and {malformed} malformed")
        self._produce(self._parts[0])
        self._archive_process = self._start("archive")
        self._start("speed")
        self._airflow_start = self._pool.submit(lambda: self.airflow.start(supervised=True))
        self.supervisor.follow(self._airflow_start)
        self._await_archived("the first events are archived")
        self._produce(self._parts[1])
        self._await_archived("the next events are archived")

    def _kill_archive(self) -> None:
        self._archive_process.kill()
        self._show.say(f"Killed {self._archive_process.name}; events keep arriving")
        self._produce(self._parts[2])
        self._archive_process.launch()
        self._await_archived("the archive stream catches up from its checkpoint")

    def _lose_checkpoint(self) -> None:
        self._archive_process.stop()
        writers = self._archive.writers()
        deleted = self._archive.lose_checkpoint()
        self._show.say(f"Deleted the checkpoint's {deleted} objects: everything will be archived again")
        self._archive_process.launch()
        ends = self._log.ends()
        writer = self.supervisor.until(
            lambda: self._archive.writer_holds(ends, not_writers=writers),
            "the archive stream reads the topic from its start, under a new query id",
            timeout_s=ARCHIVED_S,
        )
        self._show.say(f"Query {writer} archived all {sum(ends.values())} records again, in its own batches")

    def _lose_manifest(self) -> Loss:
        for part in self._parts[3:]:
            self._produce(part)
            self._await_archived("the last events are archived")
        loss = self._archive.lose_manifest()
        self._show.say(f"Deleted {loss.key}: the archive has lost {loss.offsets} records")
        self._show.say(f"No other manifest holds {verify.gap_text(loss)}")
        return loss

    def _await_airflow(self) -> None:
        self.supervisor.until(self._airflow_start.done, "Airflow starts", timeout_s=AIRFLOW_S)
        self._airflow_start.result()
        self._show.say(f"Airflow is healthy: {self.airflow.api.url}")

    def _verify(self, run: Run, loss: Loss) -> bool:
        settings, check = self.stack.settings, self.supervisor.check
        good = sum(not item.event.malformed for item in self._log.sent)

        def live() -> verify.OutputTopic | None:
            found = verify.read_topic(settings.kafka, self._stream.speed.topic, check)
            return found if len(found.places) >= good else None

        found = verify.findings(
            sent=self._log.sent,
            expected=verify.expected_rows(),
            found=verify.published(settings, self._stream),
            live=self.supervisor.until(live, "the speed stream delivers every record", timeout_s=LIVE_S),
            dead=verify.read_topic(settings.kafka, self._stream.speed.dead_letter_topic, check),
            loss=loss,
            refill=run.require(PLAN).refill,
            final=final_plan(run),
            rebuilt=run.require(REBUILD),
        )
        table = Table(show_header=False)
        for item in found:
            mark = Text("true", "green") if item.holds else Text("FALSE", "bold red")
            table.add_row(mark, Text(item.claim), Text(item.detail))
        self._show.console.print(table)
        return all(item.holds for item in found)

    def _where(self) -> None:
        late = next(item for item in self._log.sent if item.event.late)
        arguments = ["where", STREAM, self._log.topic, str(late.partition), str(late.offset), "--stack", NAME]
        self.where_command = f".venv/bin/tidemark {shlex.join(arguments)}"
        self._show.say(self.where_command)
        done = subprocess.run(
            [*TIDEMARK, *arguments],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": self.stack.env["PYTHONPATH"], "COLUMNS": str(self._show.console.width)},
            capture_output=True,
            text=True,
            timeout=WHERE_S,
            check=False,
        )
        if done.returncode != 0:
            raise StackError("'tidemark where' failed", found=f"exit code {done.returncode}", hint=done.stderr.strip())
        self._show.console.print(Text(done.stdout.rstrip()))

    def _save_report(self, run: Run) -> None:
        key = self._layout.run_key(run.name, "report.html")
        page = self._store.get(key)
        if page is None:
            raise StackError("the run left no report", expected=f"s3://{self._store.bucket}/{key}")
        self.report_file.write_bytes(page)

    def _produce(self, part: tuple[Event, ...]) -> None:
        self._show.doing(f"sending {len(part)} events to Kafka")
        self._log.produce(part, self.supervisor.check)
        self._show.say(f"Sent {len(part)} events, {len(self._log.sent)} so far")

    def _await_archived(self, what: str) -> None:
        ends = self._log.ends()
        self.supervisor.until(lambda: self._archive.holds(ends), what, timeout_s=ARCHIVED_S)
        found = self._archive.manifests()
        self._show.say(
            f"Archived: all {sum(ends.values())} records, in {len(found)} batch{'es' if len(found) > 1 else ''}"
        )

    def _start(self, layer: str) -> Managed:
        return self.stack.processes.start(
            f"{layer}-stream",
            [sys.executable, str(SPARK_APPS / APPS[layer]), STREAM],
            env={**self.stack.env_of(layer), **BRIEF_JVM},
            ready=lambda: True,  # it is ready when it archives or delivers
            timeout_s=ARCHIVED_S,
            log=self.stack.logs / f"{layer}-stream.log",
            cwd=PROJECT,
        )
