"""Parts of a page, each of which may have failed alone: with Kafka down, the page still shows what S3 knows."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, TypeVar

from tidemark.core.errors import TidemarkError
from tidemark.core.text import error_text

T = TypeVar("T")
SECONDS_MAX = 3.0
# A service that hangs occupies threads until its own timeouts end; further parts then fail as not answered.
_POOL = ThreadPoolExecutor(48, thread_name_prefix="pages")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError:
    """Why a part is missing, in the parts of an error's message; ``hint`` says what to do."""

    problem: str
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """A value, or the error in its place."""

    value: T | None = None
    error: PartError | None = None


def read_parts(jobs: Mapping[str, Callable[[], Any]], *, seconds: float = SECONDS_MAX) -> dict[str, Part[Any]]:
    """The result of each job, all at once. One that fails or takes longer than ``seconds`` hides no other."""
    asked = {name: _POOL.submit(job) for name, job in jobs.items()}
    deadline = monotonic() + seconds
    found: dict[str, Part[Any]] = {}
    for name, future in asked.items():
        try:
            found[name] = Part(value=future.result(timeout=max(deadline - monotonic(), 0)))
        except TimeoutError as error:
            # Also what a job itself raises, which has ended then.
            found[name] = Part(error=part_error(error) if future.done() else _no_answer(name, seconds))
        except Exception as error:  # noqa: BLE001 - a part that fails must not hide the others
            found[name] = Part(error=part_error(error))
    return found


def part_error(error: Exception) -> PartError:
    """An exception as a page shows it."""
    if not isinstance(error, TidemarkError):
        return PartError(problem=error_text(error), hint="The api-server's log may say more.")
    return PartError(
        problem=error.problem,
        expected=_text(error.expected),
        found=_text(error.found),
        where=error.where,
        hint=error.hint,
    )


def _no_answer(name: str, seconds: float) -> PartError:
    return PartError(
        problem=f"{name}: no answer",
        expected=f"an answer within {seconds:g} s",
        found="none yet",
        hint="Load the page again. If that does not help, a server does not answer: ask whoever runs Tidemark here. The"
        " command 'tidemark doctor' names the server.",
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
