"""A run: its name, its stream, and the outcome of each of its steps in S3."""

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self, TypeVar

from tidemark.connections.spark import SparkSizes
from tidemark.core.codec import decode, encode
from tidemark.core.errors import FormatError, IncompleteError, ServiceError
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.masking import failure_text, masked_failures
from tidemark.core.outcome import Attempt, Outcome, RunStep
from tidemark.definitions.stream import Stream, load_stream
from tidemark.logs import log_context
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.telemetry.steps import export_step

_LOG = logging.getLogger(__name__)
_NAME_CHARACTERS_MAX = 129
_OTHER_VERSION = "Another version of Tidemark wrote it: start a new run of the days"
_FIELDS = {"step", "started_at", "seconds", "status", "error", "kind", "result"}
T = TypeVar("T")


def run_name(run_id: str) -> str:
    """The scheduler's run id as a name for keys, branches and writers: only ``A-Z a-z 0-9 _ -``.

    An id that had to be changed gets eight digits of its digest appended, so two ids never share a name. The
    name of a name is the name itself.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run_id)
    if safe == run_id and 0 < len(safe) <= _NAME_CHARACTERS_MAX:
        return safe
    digits = digest(run_id.encode())[:8]
    return f"{safe[: _NAME_CHARACTERS_MAX - len(digits) - 1].strip('-')}-{digits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's context. Each step's outcome is ``<step>.json`` in the run's folder; a retry of the step replaces it."""

    stream: Stream
    settings: Settings
    store: ObjectStore
    layout: Layout
    name: str

    @classmethod
    def open(cls, stream_name: str, name: str, settings: Settings) -> Self:
        """The run ``name`` (see ``run_name``) of a stream; raises ConfigError where there is no such stream."""
        stream = load_stream(stream_name, settings.streams_dir)
        return cls(
            stream=stream,
            settings=settings,
            store=ObjectStore(settings),
            layout=Layout(prefix=settings.prefix, stream=stream.name),
            name=name,
        )

    @property
    def spark_sizes(self) -> SparkSizes:
        """What holds for the run's Spark applications."""
        return self.settings.spark_sizes("batch", self.stream.spark)

    def key(self, step: str) -> str:
        """Where a step's outcome is."""
        return self.layout.run_key(self.name, f"{step}.json")

    def save(self, step: RunStep[T], outcome: Outcome[T]) -> None:
        """Write a step's outcome, replacing an earlier attempt's."""
        value = {"step": step.name, **encode(outcome)}
        self.store.put(self.key(step.name), canonical_json(value), content_type="application/json")

    def outcome(self, step: RunStep[T]) -> Outcome[T] | None:
        """How the step's last attempt ended; None where it never ran. Raises FormatError where that does not parse."""
        where = self.key(step.name)
        body = self.store.get(where)
        if body is None:
            return None
        try:
            value = {"kind": None, **json.loads(body)}  # which an earlier version does not write
            found = value.keys()
        except (ValueError, TypeError) as error:
            raise FormatError("a step's outcome does not parse", found=repr(error), where=where) from error
        if found != _FIELDS:
            raise FormatError(
                "a step's outcome has other fields",
                expected=", ".join(sorted(_FIELDS)),
                found=", ".join(sorted(found)),
                where=where,
                hint=_OTHER_VERSION,
            )
        del value["step"]
        raw = value.pop("result")
        try:
            result = None if raw is None else decode(step.result, raw, where=f"{where}.result")
        except FormatError as error:
            raise FormatError(
                error.problem, expected=error.expected, found=error.found, where=error.where, hint=_OTHER_VERSION
            ) from error
        return Outcome(**value, result=result)

    def require(self, step: RunStep[T]) -> T:
        """The result of a step that succeeded; raises IncompleteError where it did not run or failed."""
        found = self.outcome(step)
        if found is None or found.status != "ok" or found.result is None:
            raise IncompleteError(
                f"step {step.name!r} of the run has not succeeded",
                expected="status ok",
                found="no outcome" if found is None else f"{found.status}: {found.error}",
                where=self.key(step.name),
                hint=f"Run step {step.name!r} first",
            )
        return found.result

    @contextmanager
    def step(self, step: RunStep[T]) -> Iterator[Attempt[T]]:
        """Time the body and save its outcome, then export its metrics; the body sets ``result`` of what is yielded.

        A failure is saved with the result so far, and raised again.
        """
        attempt: Attempt[T] = Attempt(started_at=datetime.now(UTC))
        clock = time.monotonic()

        def outcome(error: str | None, kind: str | None = None) -> Outcome[T]:
            return Outcome(
                started_at=attempt.started_at.isoformat(timespec="milliseconds"),
                seconds=round(time.monotonic() - clock, 3),
                status="ok" if error is None else "failed",
                error=error,
                kind=kind,
                result=attempt.result,
            )

        with log_context(stream=self.stream.name, run=self.name, step=step.name):
            try:
                with masked_failures(personal=self.stream.has_personal):
                    yield attempt
            except BaseException as error:
                failed = outcome(failure_text(error), type(error).__name__)
                try:
                    self.save(step, failed)
                except ServiceError as unsaved:
                    # The failure itself matters more than that it could not be recorded.
                    error.add_note(f"and step {step.name!r} could not be saved as failed: {unsaved}")
                self._export(step, failed)
                raise
            ended = outcome(None)
            self.save(step, ended)
            self._export(step, ended)
            _LOG.info("step %s has ended", step.name, extra={"status": ended.status, "seconds": ended.seconds})

    def _export(self, step: RunStep[T], outcome: Outcome[T]) -> None:
        result = outcome.result
        export_step(
            deployment=self.settings.deployment,
            stream=self.stream.name,
            step=step.name,
            seconds=outcome.seconds,
            failed=outcome.status != "ok",
            figures=None if result is None or step.figures is None else step.figures(result),
        )
