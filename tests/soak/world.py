"""One speed stream as its operator runs it: restarted whenever it ends."""

import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from pyspark.sql import SparkSession

from tests.soak.feed import ANY_TIME, Feeder
from tests.soak.oracle import ends
from tests.speed.live import SpeedApp, speed_app
from tidemark.connections.kafka import KafkaConnection
from tidemark.core import errors
from tidemark.core.errors import TidemarkError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import load_stream
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.speed.stream import speed
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed

_ERRORS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, TidemarkError)}
_ANY_ERROR = re.compile(r"(\w+(Error|Exception|Interrupt)\b|Traceback )")
PARTITIONS = 4
DEADLINE_S = 600
STARTS_IN_VAIN = 8
# With Python, so that both modes have Python workers to kill. Not with pandas, whose numbers beside nulls have 53 bits.
TRANSFORM = """\
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

@udf(LongType())
def same(number):
    return number

def transform(records):
    return records.select("source", "event_time", same("event.n").alias("n"))
"""


def ending(output: str) -> tuple[str | None, str]:
    """The error of Tidemark with which an application ended, if there is one, and its last line.

    Spark's JVM may log more while it ends. An error before the last event is not the one that ended it.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    since = next((at for at in range(len(lines), 0, -1) if lines[at - 1].startswith("{")), 0)
    errors_named = [line for line in lines[since:] if _ANY_ERROR.match(line)]
    error = errors_named[-1] if errors_named and errors_named[-1].partition(":")[0] in _ERRORS else None
    return error, lines[-1] if lines else ""


class World:
    """The stream, its feeder, and its running application. ``endings`` counts how applications ended."""

    def __init__(self, stack: LocalStack, mode: str, folder: Path, chance: random.Random, feeder: Feeder) -> None:
        self.stack, self.mode, self.chance, self.feeder = stack, mode, chance, feeder
        self.bootstrap = stack.settings.kafka_bootstrap
        self.stream = load_stream(f"soak_{mode}", stack.settings.streams_dir)
        self.topic_id = describe_topic(KafkaConnection.plain(self.bootstrap), self.stream.topic)[0].topic_id
        self._store = ObjectStore(stack.settings)
        self._layout = Layout(prefix=stack.settings.prefix, stream=self.stream.name)
        self.endings: Counter[str] = Counter()
        self.starts = 0
        self.app: SpeedApp | None = None
        self.killed = False  # by a fault: the ending is not counted
        self._in_vain = 0
        self._folder = folder
        self._apps = ExitStack()

    @property
    def kafka(self) -> Managed:
        return next(managed for managed in self.stack.processes if managed.name == "kafka")

    def start(self, *arguments: str) -> SpeedApp:
        """Another application besides running ones, with its own log."""
        self.starts += 1
        log = self._folder / f"{self.mode}-{self.starts:03}.log"
        return self._apps.enter_context(speed_app(self.stack, self.stream, log, *arguments))

    def up(self) -> SpeedApp:
        """The application; started if it does not run."""
        if self.app is not None and self.app.process.poll() is not None:
            if self.note(self.app).startswith("PositionError: exactly-once delivery cannot"):
                self.restore({})  # as the error recommends: the markers decide
            self._in_vain = 0 if self.killed or _worked(self.app) else self._in_vain + 1
            assert self._in_vain < STARTS_IN_VAIN, f"it does not come back:\n{self.app.output[-6000:]}"
            self.app, self.killed = None, False
        if self.app is None:
            self.app = self.start()
        return self.app

    def hand_over(self) -> SpeedApp:
        """The application, which is no longer restarted."""
        app, self.app = self.up(), None
        return app

    def note(self, app: SpeedApp) -> str:
        """Count how an application ended: by a signal, normally, or with an error. Returns that, or its last line."""
        code = app.process.returncode
        error, last = ending(app.output)
        if code is not None and code > 0:
            self.endings[_same(error) if error else f"unexplained: {last[:300]}"] += 1
        else:
            self.endings["exit 0" if code == 0 else f"signal {-(code or 0)}"] += 1
        return error or last

    def checkpoint(self) -> dict[str, bytes]:
        """A copy of the stream's checkpoint."""
        prefix = self._layout.checkpoint_prefix("speed")
        found = {item.key: self._store.get(item.key) for item in self._store.list(prefix)}
        return {key: body for key, body in found.items() if body is not None}

    def restore(self, copy: Mapping[str, bytes]) -> None:
        """Replace the stream's checkpoint by the copy."""
        for key in self.checkpoint():
            self._store.delete(key)
        for key, body in copy.items():
            self._store.put(key, body)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for a condition, and keep an application running."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}; {self.app and self.app.output}"
            self.up()
            time.sleep(0.2)

    def written(self) -> int:
        """The ends of both output topics, committed or not."""
        return ends(self.bootstrap, self.stream.speed.topic, self.stream.speed.dead_letter_topic)

    def finish(self, spark: SparkSession | None = None) -> None:
        """Kill what runs and deliver every record: in that session, or with applications."""
        if self.app is not None:
            signal_all(self.app, signal.SIGKILL)
            self.app.process.wait(60)
            self.note(self.app)
            self.app = None
        if spark is not None:
            speed(spark, self.stream, self.stack.settings, available_now=True)
            return
        for _ in range(STARTS_IN_VAIN):
            app = self.start("--available-now")
            code = app.wait()
            self.note(app)
            if code == 0:
                return
        raise AssertionError(f"it does not come to an end: {dict(self.endings)}")

    def close(self) -> None:
        """Kill what is left."""
        self._apps.close()


@contextmanager
def world(stack: LocalStack, mode: str, folder: Path, chance: random.Random, **speed: Any) -> Iterator[World]:
    """A stream of its own in that mode, its feeder and its application; ``speed`` are further keys of the stream.

    After the block, feeding has stopped and nothing runs.
    """
    name = f"soak_{mode}"
    definition = {
        "name": name,
        "topic": f"{name}-source",
        "value_schema": "n BIGINT",
        "speed": {
            "topic": f"{name}-live",
            "dead_letter_topic": f"{name}-dead",
            "delivery": mode,
            "trigger_seconds": 0,
            # Several transactions per task, so that faults hit between and inside them.
            "transaction_records": 500,
            **speed,
        },
    }
    streams = stack.settings.streams_dir
    streams.mkdir(parents=True, exist_ok=True)
    (streams / f"{name}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    (streams / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    bootstrap = stack.settings.kafka_bootstrap
    ensure_topic(KafkaConnection.plain(bootstrap), f"{name}-source", partitions=PARTITIONS, config=ANY_TIME)
    feeder = Feeder(bootstrap, f"{name}-source", PARTITIONS)
    found = World(stack, mode, folder, chance, feeder)
    try:
        with feeder:
            yield found
    finally:
        found.close()


def members(app: SpeedApp) -> list[psutil.Process]:
    """The running processes of the application's session: driver, JVM, Python workers, executors."""
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == app.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def signal_all(app: SpeedApp, number: signal.Signals) -> None:
    """Send a signal to every process of the application."""
    for process in members(app):
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _worked(app: SpeedApp) -> bool:
    return bool(app.events("batch"))


def _same(line: str) -> str:
    """A message without its numbers, as a key for counting."""
    return re.sub(r"[0-9]+", "N", line)[:160]
