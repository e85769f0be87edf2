"""The doctor's order: a line per cause, an answer from every check, and clocks."""

import re
import threading
from collections.abc import Iterable

import pytest

from tidemark.core.errors import ServiceError
from tidemark.inspect.doctor.checkup import Checkup, Probe, run_checks
from tidemark.inspect.doctor.clock import clock_line
from tidemark.inspect.doctor.roles import ROLES
from tidemark.installation import PROJECT


@pytest.mark.parametrize("page", ["doctor", "s3-policies"])
def test_the_table_of_roles_has_every_role(page: str) -> None:
    text = (PROJECT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    rows = text.partition("| Role |")[2].partition("\n\n")[0].splitlines()[2:]
    named = {role for row in rows for role in re.findall(r"`([a-z]+)`", row.split("|")[1])}
    assert named == set(ROLES)


def fine(probe: Probe) -> Iterable[Checkup]:
    yield probe.ok("fine")


def refused(_: Probe) -> Iterable[Checkup]:
    raise ServiceError("it is closed", found="a door", where="here", hint="Open it")


def states(*probes: Probe) -> list[tuple[str, str, str, str]]:
    return [(line.name, line.state, line.found, line.hint) for line in run_checks(probes, lambda _: None)]


def test_a_check_whose_need_failed_is_skipped_and_names_the_first_cause() -> None:
    assert states(
        Probe(subject="S3", name="door", ask=refused),
        Probe(subject="S3", name="room", ask=fine, needs=("S3: door",)),
        Probe(subject="S3", name="chair", ask=fine, needs=("S3: room",)),
        Probe(subject="S3", name="garden", ask=fine),
    ) == [
        ("door", "failed", "it is closed: found a door [here]", "Open it"),
        ("room", "skipped", "needs S3: door", ""),
        ("chair", "skipped", "needs S3: door", ""),
        ("garden", "ok", "fine", ""),
    ]


def test_an_unexpected_error_fails_its_line_and_not_the_others() -> None:
    def broken(_: Probe) -> Iterable[Checkup]:
        raise KeyError("x")

    first, second = states(Probe(subject="S3", name="a", ask=broken), Probe(subject="S3", name="b", ask=fine))
    assert first[:3] == ("a", "failed", "KeyError: 'x'")
    assert second == ("b", "ok", "fine", "")


def test_a_check_without_an_answer_fails_after_its_limit() -> None:
    over = threading.Event()

    def hangs(probe: Probe) -> Iterable[Checkup]:
        over.wait()
        yield probe.ok("late")

    assert states(Probe(subject="S3", name="a", ask=hangs, limit_s=0.2))[0][:3] == (
        "a",
        "failed",
        "no answer within 0.2 s",
    )
    over.set()


def test_each_check_is_announced_before_it_starts_and_a_skipped_one_is_not() -> None:
    seen: list[str] = []
    probes = (
        Probe(subject="S3", name="door", ask=refused),
        Probe(subject="S3", name="room", ask=fine, needs=("S3: door",)),
    )
    run = run_checks(probes, lambda probe: seen.append(f"begin {probe.name}"))
    seen.extend(line.name for line in run)
    assert seen == ["begin door", "door", "room"]


@pytest.mark.parametrize(
    ("there", "state", "text"),
    [
        (100.5, "ok", "at most 1.0 s from Kafka's"),
        (104.0, "ok", "at most 3.0 s from Kafka's"),
        (111.0, "warning", "this machine's clock is 10 s late, compared with Kafka's"),
        (90.0, "warning", "this machine's clock is 10 s ahead of Kafka's"),
        (3701.0, "failed", "this machine's clock is 3,600 s late, compared with Kafka's"),
        (-3500.0, "failed", "this machine's clock is 3,600 s ahead of Kafka's"),
    ],
)
def test_a_server_s_time_outside_the_request_is_a_difference_of_clocks(there: float, state: str, text: str) -> None:
    line = clock_line(Probe(subject="Kafka", name="clock", ask=fine), "Kafka", there, 100.0, 101.0)
    assert (line.state, line.found) == (state, text)
