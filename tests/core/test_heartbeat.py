"""Heartbeats and their keys read back to what was written, and nothing else reads at all."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.worlds import log, ranges
from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.core.plan import LogRange

heartbeats = st.builds(
    Heartbeat,
    deployment=st.sampled_from(["prod", "lake/dev"]),
    stream=st.sampled_from(["flights", "a_1"]),
    layer=st.sampled_from(["archive", "speed"]),
    state=st.sampled_from(["running", "stopped", "failed"]),
    time=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-5))])),
    version=st.integers(1, 99),
    writer=st.none() | st.uuids().map(str),
    batch=st.none() | st.integers(0, 10**9),
    positions=st.dictionaries(st.integers(0, 200), st.integers(0, 2**62)).map(lambda ends: tuple(sorted(ends.items()))),
    lag_records=st.none() | st.integers(0, 2**62),
    lag_seconds=st.none() | st.floats(0, 1e9),
    overflow_rows=st.integers(0, 2**62),
    out_of_bounds_rows=st.integers(0, 2**62),
    alarm_until=st.none() | st.datetimes(timezones=st.just(UTC)),
    error=st.none() | st.text(max_size=40),
    extents=st.builds(LogRange, log=st.just(log()), range=ranges()).map(lambda item: (item,)),
    unreadable_times=st.integers(0, 2**62),
    unreadable_times_share=st.none() | st.floats(0, 1),
    unreadable_times_until=st.none() | st.datetimes(timezones=st.just(UTC)),
)
EXAMPLE = Heartbeat(
    deployment="prod",
    stream="flights",
    layer="archive",
    state="running",
    time=datetime(2013, 1, 14, tzinfo=UTC),
    version=1,
    writer=None,
    batch=None,
    positions=((0, 7), (10, 3)),
    lag_records=None,
    lag_seconds=None,
    overflow_rows=0,
    out_of_bounds_rows=0,
    alarm_until=None,
    error=None,
)


@given(heartbeats)
def test_a_heartbeat_reads_back_equal_and_to_the_same_bytes(heartbeat: Heartbeat) -> None:
    body = heartbeat.to_json()
    assert parse_heartbeat(body, where="here") == heartbeat
    assert parse_heartbeat(body, where="here").to_json() == body


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", 4, r"unknown heartbeat format: expected 3, found 4 \[here\]"),
        ("format", "3", r"unknown heartbeat format: expected 3, found 3 \[here\]"),
        ("state", "fine", "expected running, stopped, failed, found fine"),
        ("time", "2013-01-14T00:00:00", "a time without its zone"),
        ("time", "yesterday", "does not parse"),
        ("alarm_until", "2013-01-14T00:00:00", "a time without its zone"),
        ("unreadable_times_until", "2013-01-14T00:00:00", "a time without its zone"),
        ("positions", [], "does not parse"),
        ("positions", {"a": 1}, "does not parse"),
        ("error", ..., "does not parse: .* found KeyError\\('error'\\)"),
        ("positions", {"1": "7"}, r"does not parse: expected int, found '7' \[here\]"),
        ("lag_records", "many", r"does not parse: expected int, found 'many' \[here lag_records\]"),
        ("batch", True, r"does not parse: expected int, found True \[here batch\]"),
        ("extents", [{"log": {"topic": "t", "topic_id": "i", "partition": 0}, "range": [9, 1]}], "here"),
        ("extents", [{"log": 1}], r"fields differ: expected log, range, found log \[here"),
    ],
)
def test_a_damaged_heartbeat_is_refused(field: str, value: object, message: str) -> None:
    raw = json.loads(EXAMPLE.to_json())
    assert raw["positions"] == {"0": 7, "10": 3}
    raw[field] = value
    if value is ...:
        del raw[field]
    with pytest.raises(FormatError, match=message):
        parse_heartbeat(json.dumps(raw).encode(), where="here")


@pytest.mark.conformance(66)
@pytest.mark.parametrize(
    "lack",
    [
        ("deployment", "overflow_rows", "out_of_bounds_rows", "alarm_until", "extents"),
        ("overflow_rows", "out_of_bounds_rows", "alarm_until", "extents"),
        ("deployment", "overflow_rows", "out_of_bounds_rows", "alarm_until"),
        ("deployment", "extents"),
        (),
    ],
)
def test_each_form_of_format_1_reads_with_defaults_for_missing_fields(lack: tuple[str, ...]) -> None:
    raw = {"format": 1, "batch": 7, "deployment": "prod", "stream": "flights", "layer": "archive", "state": "running"}
    raw |= {"time": "2013-01-14T00:00:00+00:00", "version": 1, "writer": "q", "positions": {"0": 7, "10": 3}}
    raw |= {"lag_records": 4, "lag_seconds": 1.5, "overflow_rows": 0, "out_of_bounds_rows": 0, "alarm_until": None}
    raw |= {"error": None, "extents": []}
    read = parse_heartbeat(json.dumps({name: raw[name] for name in raw if name not in lack}).encode(), where="here")
    deployment = "" if "deployment" in lack else "prod"
    assert read == replace(EXAMPLE, deployment=deployment, writer="q", batch=7, lag_records=4, lag_seconds=1.5)


@pytest.mark.parametrize("form", [2, 3])
def test_a_later_heartbeat_lacks_nothing_of_its_format(form: int) -> None:
    raw = json.loads(EXAMPLE.to_json())
    assert raw["format"] == 3
    if form == 2:
        raw = {name: value for name, value in raw.items() if not name.startswith("unreadable_times")} | {"format": 2}
        assert parse_heartbeat(json.dumps(raw).encode(), where="here") == EXAMPLE
    for name in raw.keys() - {"format"}:
        with pytest.raises(FormatError, match=f"KeyError\\('{name}'\\)"):
            parse_heartbeat(json.dumps({key: raw[key] for key in raw if key != name}).encode(), where="here")


def test_a_number_beyond_every_float_is_no_lag() -> None:
    body = EXAMPLE.to_json().replace(b'"lag_seconds":', b'"lag_seconds":1' + b"0" * 400 + b',"x":')
    with pytest.raises(FormatError, match="a heartbeat does not parse: expected format 1 to 3"):
        parse_heartbeat(body, where="here")


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"text"', b"\xff"])
def test_what_is_no_object_is_no_heartbeat(body: bytes) -> None:
    with pytest.raises(FormatError, match="here"):
        parse_heartbeat(body, where="here")


@pytest.mark.parametrize(("prefix", "folder"), [("", ""), ("lake", "lake/"), ("a/b", "a/b/")])
def test_a_heartbeat_lies_below_its_stream_in_the_archive(prefix: str, folder: str) -> None:
    key = Layout(prefix=prefix, stream="flights").heartbeat_key("speed")
    assert key == f"{folder}heartbeats/flights/speed.json"


def test_the_heartbeat_shown_in_the_documentation_is_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "watch-streams.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'^(\{"format": 3, "deployment".*?\})$', text, re.MULTILINE | re.DOTALL)
    heartbeat = parse_heartbeat(shown.encode(), where="watch-streams.md")
    assert json.loads(heartbeat.to_json()) == json.loads(shown)
