"""The events of one run of a continuous layer: START, RUNNING about once a minute, and how it ended."""

import time
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from tidemark.core.errors import DisplacedError
from tidemark.core.masking import failure_text
from tidemark.definitions.stream import Stream
from tidemark.lineage.datasets import stream_job
from tidemark.lineage.emit import configured, emitter
from tidemark.lineage.run_events import LineageEvent, State, given_ancestors
from tidemark.settings import Settings

RUNNING_S = 60.0


class StreamLineage:
    """Counts what a layer has done since its start, and sends it. Does nothing where no lineage tool is configured."""

    def __init__(self, stream: Stream, settings: Settings, layer: str) -> None:
        self._stream, self._settings, self._layer = stream, settings, layer
        self._run_id = str(uuid4())
        self._rows = self._dead_letters = 0
        self._sent_at: float | None = None

    def start(self) -> None:
        self._send("START", counted=False)

    def batch(self, *, records: int, dead_letters: int) -> None:
        """Count a committed batch. The first one is sent at once."""
        self._rows += records
        self._dead_letters += dead_letters
        if self._sent_at is None or time.monotonic() - self._sent_at >= RUNNING_S:
            self._sent_at = time.monotonic()
            self._send("RUNNING")

    def end(self, error: BaseException | None) -> None:
        """Send how the run ended; takes 5 s at most. A writer that another one displaced has not failed."""
        if error is None:
            self._send("COMPLETE")
        else:
            state: State = "ABORT" if isinstance(error, DisplacedError) else "FAIL"
            self._send(state, error=failure_text(error, named=True))
        if configured():
            emitter().flush()

    def _send(
        self,
        state: State,
        *,
        counted: bool = True,
        error: str | None = None,
    ) -> None:
        if not configured():
            return
        counts = {"rows": self._rows, "dead_letters": self._dead_letters} if counted else {}
        event = partial(
            LineageEvent,
            state=state,
            time=datetime.now(UTC),
            run_id=self._run_id,
            job=stream_job(self._stream, self._settings, self._layer, **counts),
            ancestors=given_ancestors(),
            error=error,
        )
        emitter().send(event)
