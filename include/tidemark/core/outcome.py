"""A step of a run by its name and result, and how an attempt of it ended."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

from tidemark.core.instruments import Figures

T = TypeVar("T")


@dataclass(frozen=True)
class RunStep(Generic[T]):
    """A step by its name, and the type of its result: a frozen dataclass, or ``dict[str, Any]`` for a report.

    ``figures`` are the metrics in a result, besides the step's duration and whether it failed.
    """

    name: str
    result: type[T]
    figures: Callable[[T], Figures] | None = None


@dataclass(kw_only=True)
class Attempt(Generic[T]):
    """A step under way. ``result`` is saved when the body ends, also when it fails."""

    started_at: datetime
    result: T | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[T]):
    """How the last attempt of a step ended.

    A failed attempt may have no ``result``. ``kind`` is the class of its error. ``started_at`` is an ISO text in UTC.
    """

    started_at: str
    seconds: float
    status: Literal["ok", "failed"]
    error: str | None
    result: T | None
    kind: str | None = None
