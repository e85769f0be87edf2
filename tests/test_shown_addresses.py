"""Addresses of lineage tools and collectors come from other programs' variables: warnings show no login of them."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.waiting import wait_until
from tidemark.lineage import emit
from tidemark.telemetry.export import ENDPOINTS, FirstComplaint

pytestmark = pytest.mark.conformance(29)
WITH_LOGIN = "http://me:a/planted@collector:4318/v1?key=planted"


def test_a_warning_about_lineage_shows_no_login(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise ValueError(f"Failed to parse: {WITH_LOGIN}")

    monkeypatch.setattr(emit, "_new_client", lambda: SimpleNamespace(emit=None))
    emitter = emit.Emitter()
    with caplog.at_level(logging.WARNING):
        emitter.send(fail)
        wait_until(lambda: bool(caplog.text), "a warning")
    assert "Failed to parse: http://•••@collector:4318/v1?•••" in caplog.text
    assert "planted" not in caplog.text


@pytest.mark.parametrize("name", ENDPOINTS)
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://me:planted@collector:4318/v1?key=planted", "collector:4318"),
        ("http://collector:4318/v1?key=AAA//planted", "collector:4318"),
        ("http://collector:4318//v1", "collector:4318"),
        ("collector:4318", "collector:4318"),
        (WITH_LOGIN, "•••"),
        ("http://me:p@planted@collector:4318/v1", "•••"),
        ("http://collector:4318/v1?mail=me@planted", "•••"),
    ],
)
def test_a_warning_about_metrics_shows_the_host_and_no_login(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str, shown: str
) -> None:
    for each in ENDPOINTS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, address)
    given: list[tuple[str, str]] = []
    FirstComplaint(lambda *texts: given.append(texts)).make(f"no answer from {address}")
    ((error, host),) = given
    assert host == shown
    assert "planted" not in error
