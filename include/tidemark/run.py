"""One reconcile run: its name, its stream, and what each of its steps left behind in S3."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from tidemark.core.codec import decode
from tidemark.core.errors import (
    FormatError,
    IncompleteError,
    ServiceError,
    TidemarkError,
)
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json, digest
from tidemark.core.plan import Plan
from tidemark.definitions.stream import Stream, load_stream
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

_NAME_CHARACTERS_MAX = 120


def run_name(run_id: str) -> str:
    """The scheduler's run id as a name for keys, branches and writers: only ``A-Z a-z 0-9 _ -``.

    An id that had to be changed gets eight digits of its digest behind it, so two ids never share a name.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", run_id)[:_NAME_CHARACTERS_MAX]
    return safe if safe == run_id and safe else f"{safe.strip('-')}-{digest(run_id.encode())[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run's context. Each step's result is ``<step>.json`` in the run's folder; a retry of the step replaces it."""

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

    def key(self, step: str) -> str:
        """Where a step's result is."""
        return self.layout.run_key(self.name, f"{step}.json")

    def save(self, step: str, value: dict[str, Any]) -> None:
        """Write a step's result, replacing an earlier attempt's."""
        self.store.put(self.key(step), canonical_json(value), content_type="application/json")

    def load(self, step: str) -> dict[str, Any] | None:
        """A step's result, of a failed attempt too; None where the step never ran."""
        body = self.store.get(self.key(step))
        if body is None:
            return None
        try:
            value = json.loads(body)
        except ValueError as error:
            raise FormatError("a step's result does not parse", found=repr(error), where=self.key(step)) from error
        if not isinstance(value, dict):
            raise FormatError("a step's result is no object", found=type(value).__name__, where=self.key(step))
        return value

    def require(self, step: str) -> dict[str, Any]:
        """The result of a step that succeeded; raises IncompleteError where it did not run or failed."""
        value = self.load(step)
        status = "no result" if value is None else value.get("status")
        if value is None or status != "ok":
            raise IncompleteError(
                f"step {step!r} of the run has not succeeded",
                expected="status ok",
                found=status if value is None else f"{status}: {value.get('error')}",
                where=self.key(step),
                hint=f"Run step {step!r} first",
            )
        return value

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Time the body and save its result: what it puts into the yielded dict, plus how it ended.

        A failure is saved with what the body had filled in so far, and raised again.
        """
        out: dict[str, Any] = {}
        started_at = datetime.now(UTC)
        clock = time.monotonic()

        def result(error: str | None) -> dict[str, Any]:
            return {
                **out,
                "step": name,
                "started_at": started_at.isoformat(timespec="milliseconds"),
                "seconds": round(time.monotonic() - clock, 3),
                "status": "ok" if error is None else "failed",
                "error": error,
            }

        try:
            yield out
        except BaseException as error:
            text = str(error) if isinstance(error, TidemarkError) else f"{type(error).__name__}: {error}"
            try:
                self.save(name, result(text))
            except ServiceError as unsaved:
                # The failure itself matters more than that it could not be recorded.
                error.add_note(f"and step {name!r} could not be saved as failed: {unsaved}")
            raise
        self.save(name, result(None))

    def plan(self, step: str = "settled") -> Plan:
        """The plan that step ``plan`` or ``settled`` made; raises IncompleteError where that has not succeeded."""
        return decode(Plan, self.require(step)["plan"], where=self.key(step))
