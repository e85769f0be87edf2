"""Results of earlier runs of the same stream."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from tidemark.core.errors import FormatError
from tidemark.core.outcome import RunStep
from tidemark.run import Run

_AT_ONCE = 16
T = TypeVar("T")


def read_results(run: Run, step: RunStep[T], names: Iterable[str]) -> dict[str, T | FormatError | None]:
    """The result of a step of each run by the run's name: None without one, an error for one that can't be read."""
    wanted = sorted(set(names))

    def read(name: str) -> T | FormatError | None:
        try:
            outcome = replace(run, name=name).outcome(step)
        except FormatError as error:
            return error
        return None if outcome is None else outcome.result

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="earlier-runs") as pool:
        return dict(zip(wanted, pool.map(read, wanted), strict=True))
