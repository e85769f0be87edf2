"""A run's name and the outcomes of its steps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.logs import Log
from tidemark.core.errors import FormatError, IncompleteError, QualityError, ServiceError
from tidemark.core.outcome import Attempt
from tidemark.reconcile.results import AUDIT, PUBLISH, WAIT, WaitResult
from tidemark.run import run_name


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_run_name_is_safe_in_keys_and_branches_and_no_two_ids_share_one(one: str, other: str) -> None:
    name = run_name(one)
    assert name
    assert all(character.isascii() and (character.isalnum() or character in "_-") for character in name)
    assert len(name) < 140
    assert run_name(name) == name
    assert (name == run_name(other)) == (one == other)


def test_a_safe_id_is_its_own_name_and_airflows_ids_stay_readable() -> None:
    assert run_name("demo_2013-01-14") == "demo_2013-01-14"
    assert run_name("scheduled__2013-01-15T00:30:00+00:00").startswith("scheduled__2013-01-15T00-30-00-00-00-")


def test_the_name_of_a_long_id_is_its_own_name() -> None:
    name = run_name(f"rebuild__manual__2026-11-26T07:40:48+00:00{'_of_a_chunk' * 12}")
    assert run_name(name) == name


def test_a_step_saves_how_long_it_took_and_its_result(log: Log) -> None:
    run = log.run()
    with run.step(WAIT) as attempt:
        attempt.result = WaitResult(ready=True, waited_seconds=0.5)
    saved = run.outcome(WAIT)
    assert saved is not None
    assert (saved.status, saved.error, saved.result) == ("ok", None, WaitResult(ready=True, waited_seconds=0.5))
    assert saved.seconds >= 0
    assert "+00:00" in saved.started_at
    body = run.store.get(run.key(WAIT.name))
    assert body is not None
    assert json.loads(body)["result"] == {"ready": True, "waited_seconds": 0.5}


def set_and_raise(attempt: Attempt[WaitResult], failure: Exception) -> None:
    attempt.result = WaitResult(ready=False, waited_seconds=3.0)
    raise failure


def test_a_failed_step_is_saved_with_its_error_and_its_result_so_far_and_raises(log: Log) -> None:
    run = log.run()
    failure = QualityError("a check failed", found="no rows")
    with pytest.raises(QualityError), run.step(WAIT) as attempt:
        set_and_raise(attempt, failure)
    saved = run.outcome(WAIT)
    assert saved is not None
    assert (saved.status, saved.error) == ("failed", "a check failed: found no rows")
    assert saved.result == WaitResult(ready=False, waited_seconds=3.0)
    with pytest.raises(IncompleteError, match="expected status ok, found failed: a check failed: found no rows"):
        run.require(WAIT)


def test_a_retry_replaces_the_failed_attempt(log: Log) -> None:
    run = log.run()
    with pytest.raises(RuntimeError), run.step(WAIT):
        raise RuntimeError("executor lost\nat https://ada:s3cret@host")
    saved = run.outcome(WAIT)
    assert saved is not None
    assert (saved.kind, saved.error) == ("RuntimeError", "RuntimeError: executor lost\\nat https://•••@host")
    with run.step(WAIT) as attempt:
        attempt.result = WaitResult(ready=True, waited_seconds=5.0)
    assert run.require(WAIT).waited_seconds == 5


def test_a_step_that_never_ran_is_named_when_another_needs_it(log: Log) -> None:
    run = log.run()
    assert run.outcome(PUBLISH) is None
    with pytest.raises(IncompleteError, match=r"step 'publish' .* found no outcome .*publish.json\]"):
        run.require(PUBLISH)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"step": "wait", "ready": true}'])
def test_an_outcome_of_another_form_is_an_error_that_names_its_object(log: Log, body: bytes) -> None:
    run = log.run()
    run.store.put(run.key(WAIT.name), body)
    with pytest.raises(FormatError, match=r"wait\.json"):
        run.outcome(WAIT)


def test_a_result_of_another_version_says_to_start_a_new_run(log: Log) -> None:
    run = log.run()
    with run.step(WAIT) as attempt:
        attempt.result = WaitResult(ready=True, waited_seconds=5.0)
    body = run.store.get(run.key(WAIT.name))
    assert body is not None
    run.store.put(run.key(WAIT.name), body.replace(b'"ready"', b'"is_ready"'))
    with pytest.raises(FormatError, match=r"wait\.json\.result.*start a new run of the days"):
        run.require(WAIT)


def test_a_failure_that_cannot_be_saved_stays_the_failure_and_says_so(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = log.run()

    def refuse(*_: object, **__: object) -> None:
        raise ServiceError("S3 put failed", found="503")

    monkeypatch.setattr(type(run.store), "put", refuse)
    with pytest.raises(QualityError) as caught, run.step(AUDIT):
        raise QualityError("a check failed")
    assert caught.value.__notes__ == ["and step 'audit' could not be saved as failed: S3 put failed: found 503"]
