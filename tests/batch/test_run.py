"""A run's name and what its steps leave behind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.logs import Log
from tidemark.core.errors import IncompleteError, QualityError, ServiceError
from tidemark.run import run_name


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_run_name_is_safe_in_keys_and_branches_and_no_two_ids_share_one(one: str, other: str) -> None:
    name = run_name(one)
    assert name
    assert all(character.isascii() and (character.isalnum() or character in "_-") for character in name)
    assert len(name) < 140
    assert (name == run_name(other)) == (one == other)


def test_a_safe_id_is_its_own_name_and_airflows_ids_stay_readable() -> None:
    assert run_name("demo_2013-01-14") == "demo_2013-01-14"
    assert run_name("scheduled__2013-01-15T00:30:00+00:00").startswith("scheduled__2013-01-15T00-30-00-00-00-")


def test_a_step_saves_how_long_it_took_and_what_it_found(log: Log) -> None:
    run = log.run()
    with run.step("wait") as out:
        out["ready"] = True
    saved = run.require("wait")
    assert {name: saved[name] for name in ("step", "status", "error", "ready")} == {
        "step": "wait",
        "status": "ok",
        "error": None,
        "ready": True,
    }
    assert saved["seconds"] >= 0
    assert "+00:00" in saved["started_at"]


def fill_and_raise(out: dict[str, Any], failure: Exception) -> None:
    out["checks"] = 3
    raise failure


def test_a_failed_step_is_saved_with_its_error_and_what_it_had_found_and_raises(log: Log) -> None:
    run = log.run()
    failure = QualityError("a check failed", found="no rows")
    with pytest.raises(QualityError), run.step("audit") as out:
        fill_and_raise(out, failure)
    saved = run.load("audit")
    assert saved is not None
    assert (saved["status"], saved["error"], saved["checks"]) == ("failed", "a check failed: found no rows", 3)
    with pytest.raises(IncompleteError, match="expected status ok, found failed: a check failed: found no rows"):
        run.require("audit")


def test_a_retry_replaces_the_failed_attempt(log: Log) -> None:
    run = log.run()
    with pytest.raises(RuntimeError), run.step("rebuild"):
        raise RuntimeError("executor lost")
    with run.step("rebuild") as out:
        out["rows"] = 5
    assert run.require("rebuild")["rows"] == 5


def test_a_step_that_never_ran_is_named_when_another_needs_it(log: Log) -> None:
    run = log.run()
    assert run.load("publish") is None
    with pytest.raises(IncompleteError, match=r"step 'publish' .* found no result .*publish.json\]"):
        run.require("publish")


def test_a_failure_that_cannot_be_saved_stays_the_failure_and_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = log.run()

    def refuse(*_: object, **__: object) -> None:
        raise ServiceError("S3 put failed", found="503")

    monkeypatch.setattr(type(run.store), "put", refuse)
    with pytest.raises(QualityError) as caught, run.step("audit"):
        raise QualityError("a check failed")
    assert caught.value.__notes__ == ["and step 'audit' could not be saved as failed: S3 put failed: found 503"]
