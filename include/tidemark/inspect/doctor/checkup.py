"""One line of the doctor, and the order of its checks: one that needs a failed one is skipped, so a cause has one line.

A check returns its lines, or raises an error, which becomes a failed line. Whatever a check tries, it also undoes.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.core.errors import TidemarkError
from tidemark.core.text import error_text

State = Literal["ok", "warning", "failed", "skipped"]
# A check without an answer has failed after so long. Each call in it has a limit of its own, below this one.
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """One line: what was checked, its state, what was found, and what to do, which is empty if nothing is."""

    subject: str
    name: str
    state: State
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A check of one thing. ``needs`` are the keys of checks without which it is skipped."""

    subject: str
    name: str
    ask: Callable[["Probe"], Iterable[Checkup]]
    needs: tuple[str, ...] = ()
    limit_s: float = LIMIT_S

    @property
    def key(self) -> str:
        return f"{self.subject}: {self.name}"

    def ok(self, found: str, *, name: str = "") -> Checkup:
        return self._line("ok", found, "", name)

    def warning(self, found: str, hint: str, *, name: str = "") -> Checkup:
        return self._line("warning", found, hint, name)

    def failed(self, found: str, hint: str, *, name: str = "") -> Checkup:
        return self._line("failed", found, hint, name)

    def skipped(self, found: str, *, name: str = "") -> Checkup:
        return self._line("skipped", found, "", name)

    def _line(self, state: State, found: str, hint: str, name: str) -> Checkup:
        return Checkup(subject=self.subject, name=name or self.name, state=state, found=found, hint=hint)


def run_checks(checks: Sequence[Probe], begin: Callable[[Probe], None]) -> Iterator[Checkup]:
    """The lines of every check, in order, each as soon as it is known. ``begin`` is called before a check starts."""
    causes: dict[str, str] = {}
    for probe in checks:
        cause = next((causes[key] for key in probe.needs if key in causes), None)
        if cause is not None:
            causes[probe.key] = cause
            yield probe.skipped(f"needs {cause}")
            continue
        begin(probe)
        lines = _answer(probe)
        if any(line.state == "failed" for line in lines):
            causes[probe.key] = probe.key
        yield from lines


def _answer(probe: Probe) -> tuple[Checkup, ...]:
    """The check's lines; a thread, because not every library has a time limit."""
    lines: list[Checkup] = []

    def ask() -> None:
        try:
            lines.extend(probe.ask(probe))
        except TidemarkError as error:
            lines.append(failure(probe, error))
        except Exception as error:  # noqa: BLE001 - a library's, which must not end the other checks
            lines.append(probe.failed(error_text(error), "This is a defect of Tidemark: report it with this line"))

    thread = threading.Thread(target=ask, name=probe.key, daemon=True)  # one that hangs must not keep the process
    thread.start()
    thread.join(probe.limit_s)
    if thread.is_alive():
        return (probe.failed(f"no answer within {probe.limit_s:g} s", "Check the server's address, port and firewall"),)
    return tuple(lines)


def failure(probe: Probe, error: TidemarkError, *, name: str = "") -> Checkup:
    """The line of an error."""
    plain = type(error)(error.problem, expected=error.expected, found=error.found, where=error.where)
    return probe.failed(str(plain), (error.hint or "").replace("\n", " "), name=name)
