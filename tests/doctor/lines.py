"""Runs the doctor in this process, without the check that starts Java, and picks lines."""

from collections.abc import Iterable, Sequence

import pytest

from tidemark.inspect.doctor import machine
from tidemark.inspect.doctor.checkup import Checkup
from tidemark.inspect.doctor.roles import ROLES, Role
from tidemark.inspect.doctor.run import doctor
from tidemark.settings import Settings


def lines(
    settings: Settings, stream: str, patch: pytest.MonkeyPatch, roles: Sequence[Role] = ROLES
) -> tuple[Checkup, ...]:
    patch.setattr(machine, "java_checks", lambda _: ())  # it would take over, and stop, the tests' own session
    return tuple(doctor(settings, stream, roles, lambda _: None))


def of_state(found: Iterable[Checkup], *states: str) -> list[tuple[str, str]]:
    return [(line.subject, line.name) for line in found if line.state in states]


def red(found: Iterable[Checkup]) -> Checkup:
    """The only failed line."""
    (line,) = (line for line in found if line.state == "failed")
    return line
