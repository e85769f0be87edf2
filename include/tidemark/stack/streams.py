"""The archive and speed applications of streams, as supervised processes of the local stack."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark.core.errors import ServiceError
from tidemark.definitions.stream import load_stream
from tidemark.installation import PROJECT, SPARK_APPS
from tidemark.kafka.topics import ensure_topic
from tidemark.stack.local import LocalStack
from tidemark.stack.processes import Managed

APPS = {"archive": "archive_stream.py", "speed": "speed_stream.py"}
READY_S = 120
SOURCE_PARTITIONS = 3
# Records may have old timestamps: the default retention would delete them at once.
SOURCE_RETENTION = {"retention.ms": "-1"}
_STARTED = b'"event": "started"'


def start_streams(stack: LocalStack, names: Sequence[str]) -> list[Managed]:
    """Start each stream's archive and speed application, one after the other, and wait until its query runs.

    A missing source topic is created, with three partitions and unlimited retention.
    """
    started = []
    for name in names:
        stream = load_stream(name, stack.settings.streams_dir)
        try:
            ensure_topic(stack.settings.kafka, stream.topic, partitions=SOURCE_PARTITIONS, config=SOURCE_RETENTION)
        except ServiceError:
            stack.processes.check()  # a dead broker says more
            raise
        started += [_start(stack, name, layer) for layer in APPS]
    return started


def _start(stack: LocalStack, name: str, layer: str) -> Managed:
    log = stack.logs / f"{layer}-{name}.log"
    argv = [sys.executable, str(SPARK_APPS / APPS[layer]), name]
    return stack.processes.start(
        f"{layer}-{name}", argv, env=stack.env_of(layer), ready=_started(log), timeout_s=READY_S, log=log, cwd=PROJECT
    )


def _started(path: Path) -> Callable[[], bool]:
    """Whether the log has the event ``started``, after the lines of earlier runs."""
    start = path.stat().st_size if path.exists() else 0

    def started() -> bool:
        with path.open("rb") as log:
            log.seek(start)
            return _STARTED in log.read()

    return started
