"""A step of a run by its name and result, and how an attempt of it ended."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class RunStep(Generic[T]):
    """A step by its name, and the type of its result: a frozen dataclass, or ``dict[str, Any]`` for a report."""

    name: str
    result: type[T]


@dataclass(kw_only=True)
class Attempt(Generic[T]):
    """A step under way. ``result`` is saved when the body ends, also when it fails."""

    started_at: datetime
    result: T | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[T]):
    """How the last attempt of a step ended.

    A failed attempt may have no ``result``. ``started_at`` is an ISO text in UTC.
    """

    started_at: str
    seconds: float
    status: Literal["ok", "failed"]
    error: str | None
    result: T | None
