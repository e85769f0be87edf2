"""Log lines as JSON objects, if the deployment wants them: each line names what its process works on.

The form is one setting of the process. Answers of commands are no log lines, and stay as they are.
"""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, date, datetime
from types import TracebackType
from typing import Any, Literal

from tidemark.core.offsets import OffsetRange, TopicPartition

LogFormat = Literal["text", "json"]
# What a call of a logger may say about its line, by ``extra``.
FIELDS = ("days", "batch", "topic", "partition", "start", "end", "status", "seconds")
_state: dict[str, Any] = {"format": "text"}
_context: dict[str, Any] = {}


def set_up_logs(form: LogFormat) -> None:
    """From now on, this process writes its log lines in this form. Call it once, at the start."""
    _state["format"] = form
    if form == "text":
        return
    logging.root.handlers[:] = [_JsonHandler()]
    logging.getLogger("tidemark").setLevel(logging.INFO)
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    # A thread has a hook of its own, and so has what Python can't raise.
    threading.excepthook = sys.unraisablehook = _unraised


def json_logs() -> bool:
    """Whether this process writes JSON."""
    return bool(_state["format"] == "json")


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Inside the block, every line has these fields. They hold for all threads: a process does one thing at a time."""
    before = dict(_context)
    _context.update(fields)
    try:
        yield
    finally:
        _context.clear()
        _context.update(before)


def add_log_context(**fields: Any) -> None:
    """Until the end of the block of ``log_context``, every line has these fields, too."""
    _context.update(fields)


def log_range(log: TopicPartition, offsets: OffsetRange) -> dict[str, Any]:
    """The fields of a line that is about these offsets, for a logger's ``extra``."""
    return {"topic": log.topic, "partition": log.partition, "start": offsets.start, "end": offsets.end}


def log_line(level: str, logger: str, message: str, fields: Mapping[str, Any]) -> str:
    """One line. Its own fields replace those of its context."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    own = {"time": now, "level": level, "logger": logger, "message": message}
    return json.dumps({**own, **_context, **fields, **own}, default=_text)


def log_error(error: BaseException) -> None:
    """Write the error that ends this process to standard error: a line that people read, or JSON."""
    text = f"{type(error).__name__}: {error}"
    line = log_line("error", "tidemark", text, {"exception": type(error).__name__}) if json_logs() else text
    sys.stderr.write(f"{line}\n")


class _JsonHandler(logging.Handler):
    """Writes what Python's loggers say to standard error. An exception stands once, in a field."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
            if record.exc_info and record.exc_info[1] is not None:
                fields["exception"] = "".join(traceback.format_exception(record.exc_info[1]))
            line = log_line(record.levelname.lower(), record.name, record.getMessage(), fields)
        except Exception as error:  # noqa: BLE001  # a library that logs wrongly must not end the work
            wrong = f"a log line can't be written: {type(error).__name__}: {record.msg!r}"
            line = log_line("error", record.name, wrong, {})
        sys.stderr.write(line + "\n")


def _unraised(found: Any) -> None:
    kind, error, trace = found.exc_type, found.exc_value, found.exc_traceback
    if kind is not SystemExit:
        _uncaught(kind, error or kind(), trace)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(log_line("critical", "tidemark", f"{kind.__name__}: {error}", {"exception": text}) + "\n")


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else str(value)
