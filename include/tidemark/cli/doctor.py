"""``tidemark doctor``: everything a deployment needs, a line each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from tidemark.cli.connect import connect
from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain
from tidemark.inspect.doctor.checkup import Checkup, Probe, State
from tidemark.inspect.doctor.roles import Role
from tidemark.inspect.doctor.run import doctor
from tidemark.settings import resolve

_SHOWN: dict[State, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "red"),
    "skipped": ("skipped", "dim"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorResult:
    """What the doctor found. ``stream`` is null if every stream was asked for."""

    healthy: bool
    stream: str | None
    roles: tuple[Role, ...]
    lines: tuple[Checkup, ...]


def print_checkup(stack: str | None, stream: str | None, roles: Sequence[Role], *, as_json: bool) -> bool:
    """Probe and print. Return whether no line is failed. Raises ConfigError if there is no such stream."""
    settings = connect(stack)
    with Console(stderr=True).status("starting") as status:

        def begin(probe: Probe) -> None:
            status.update(f"checking {probe.subject}: {probe.name}")

        lines = doctor(settings, stream, roles, begin, resolve().sources)
        found = list(lines) if as_json else list(_printed(open_console(), lines))
    healthy = not any(line.state == "failed" for line in found)
    if as_json:
        print_result("doctor", DoctorResult(healthy=healthy, stream=stream, roles=tuple(roles), lines=tuple(found)))
    return healthy


def _printed(console: Console, lines: Iterable[Checkup]) -> Iterator[Checkup]:
    """Each line as it comes; what to do stands on a line of its own, to be copied."""
    for line in lines:
        word, style = _SHOWN[line.state]
        console.print(plain(f"{word:<8}{line.subject}: {line.name}: {line.found}", style=style))
        if line.hint:
            console.print(plain(f"        {line.hint}"))
        yield line
