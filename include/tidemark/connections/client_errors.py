"""What librdkafka only reports to callbacks: why it can't connect. Its calls then merely time out."""

from threading import local
from typing import Any

_kept = local()


def keep_error(error: Any) -> None:
    """The ``error_cb`` of every client; librdkafka calls it on the thread that polls the client."""
    errors = _errors()
    errors.pop(error.code(), None)
    errors[error.code()] = error


def kept_errors() -> list[Any]:
    """The last error of each kind that this thread's clients reported, as ``KafkaError``, the latest first."""
    return list(_errors().values())[::-1]


def forget_errors() -> None:
    """Before a call: errors that are reported from now on belong to it."""
    _errors().clear()


def _errors() -> dict[int, Any]:
    """This thread's errors by code, in the order of their time."""
    if not hasattr(_kept, "errors"):
        _kept.errors = {}
    errors: dict[int, Any] = _kept.errors
    return errors
