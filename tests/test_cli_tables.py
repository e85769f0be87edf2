"""What commands print with long names: on 80 columns, on a wide terminal, and into a pipe."""

import io
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from rich.console import Console

from tests.conftest import MakeStream
from tests.core.worlds import seal_of
from tests.tables import read_tables
from tidemark.archive.retention import Retention, Waiting
from tidemark.cli import where
from tidemark.cli.days import print_states
from tidemark.cli.delivery import print_audit
from tidemark.cli.layers import print_layers
from tidemark.cli.output import PIPE_WIDTH, open_console
from tidemark.cli.replay import print_replayed
from tidemark.cli.status import print_streams
from tidemark.cli.verify import print_proof
from tidemark.core.day_summary import summarise
from tidemark.core.heartbeat import Heartbeat
from tidemark.core.offsets import OffsetRange, TopicPartition
from tidemark.core.plan import Gap
from tidemark.core.seal import SealedLog
from tidemark.current_view.day_states import DayState
from tidemark.definitions.stream import load_stream
from tidemark.inspect.health import LayerHealth
from tidemark.inspect.last_run import LastRun
from tidemark.inspect.locate import Located, RecordCopy
from tidemark.inspect.status_rows import LayerRow, StreamRow
from tidemark.run import Run
from tidemark.settings import Settings
from tidemark.speed.replay.replay import Replayed
from tidemark.verify.result import ProofPart, Verification

STREAM = "orders_of_the_northern_company"
TOPIC = "company.northern.sales.orders.european-union.v3.dead-letters"
TIME_ZONE = "America/Argentina/ComodRivadavia"
NOW = datetime(2026, 1, 14, 12, tzinfo=UTC)
NARROW, WIDE = 80, 200
WIDTHS = pytest.mark.parametrize("width", [NARROW, WIDE, PIPE_WIDTH])


class Printed:
    """A console of some width, and what was printed on it."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._out = io.StringIO()
        self.console = Console(file=self._out, width=width, soft_wrap=True)

    def text(self) -> str:
        """What was printed; checks that nothing was cut and no table is wider than the console."""
        text = self._out.getvalue()
        assert "…" not in text
        assert all(len(line) <= self.width for line in text.splitlines() if "  " in line.strip() or "─" in line)
        return text

    def rows(self, key: str) -> list[dict[str, str]]:
        """The tables' rows, with folded values joined again; one line each unless the console is narrow."""
        rows = read_tables(self.text(), key)
        if self.width > NARROW:
            assert not any("\n" in cell for row in rows for cell in row.values())
        return [{name: " ".join(cell.split()) for name, cell in row.items()} for row in rows]


def test_the_names_are_as_long_as_they_get() -> None:
    assert (len(STREAM), len(TOPIC)) == (30, 60)


@pytest.mark.parametrize(("columns", "width"), [(None, PIPE_WIDTH), ("100", 100)])
def test_a_pipe_gets_whole_rows_unless_columns_is_set(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert open_console().width == width


@WIDTHS
def test_layers_are_shown_whole(width: int) -> None:
    log = TopicPartition(topic=TOPIC, topic_id="AbC", partition=12)
    waiting = Waiting(log=log, offset=123_456_789, timestamp_ms=0, hours_left=3.5)
    error = f"ServiceError: Kafka refused a call: found {'very ' * 40}much [{TOPIC}]"
    beating = LayerHealth(
        stream=STREAM,
        layer="archive",
        heartbeat=Heartbeat(
            deployment="prod",
            stream=STREAM,
            layer="archive",
            state="failed",
            time=NOW,
            version=1,
            writer="w",
            batch=1,
            positions=((0, 5),),
            lag_records=1_234_567_890,
            lag_seconds=40_000_000.0,
            overflow_rows=0,
            out_of_bounds_rows=0,
            alarm_until=None,
            error=error,
        ),
        age_seconds=7_000_000.0,
        alive=False,
        retention=Retention(limit_ms=1, limit_bytes=1, alarm_hours=24, logs=(), waiting=(waiting,)),
    )
    silent = replace(beating, layer="departures", heartbeat=None, retention=None)
    assert beating.heartbeat is not None
    ahead = replace(
        beating, layer="speed", heartbeat=replace(beating.heartbeat, state="running", lag_records=0), retention=None
    )
    ahead = replace(ahead, age_seconds=-7_000_000.0)
    printed = Printed(width)
    print_layers(printed.console, [beating, ahead, silent], stale_seconds=60)
    rows = printed.rows("Layer")
    assert rows == [
        {
            "Layer": "archive",
            "State": "failed, stale",
            "Age": "81 d",
            "Lag": "1,234,567,890 records, 463 d",
            "Retention": "3.5 h left; not estimated: retention.bytes",
        },
        {
            "Layer": "speed",
            "State": "running, from the future",
            "Age": "81 d ahead",
            "Lag": "none",
            "Retention": "",
        },
        {"Layer": "departures", "State": "never started", "Age": "", "Lag": "", "Retention": ""},
    ]


@WIDTHS
def test_days_show_every_note_whole(tmp_path: Path, width: int) -> None:
    speed = {"topic": "live", "dead_letter_topic": "dead"}
    definition = {"name": STREAM, "topic": TOPIC, "value_schema": "n BIGINT", "time_zone": TIME_ZONE, "speed": speed}
    (tmp_path / f"{STREAM}.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    stream = load_stream(STREAM, tmp_path)
    log = SealedLog(
        log=TopicPartition(topic=TOPIC, topic_id="AbC", partition=0),
        start=0,
        end=12_345,
        used=(),
        gaps=(Gap(range=OffsetRange(start=0, end=12_345), kind="lost"),),
        holes=(),
    )
    seal = replace(
        seal_of(date(2026, 1, 1), [log], version=12),
        stream=STREAM,
        time_zone=stream.time_zone,
        rows_read=12_345_678 + 123_456,
        rows_published=12_345_678,
        rows_quarantined=123_456,
        quality="unchecked",
        reason=None,
        rolled_back_to=3,
    )
    states = [
        DayState(day=seal.day, status="sealed", sealed=summarise(seal), waiting_max=54_321),
        DayState(day=seal.day + timedelta(days=1), status="overdue", sealed=None, waiting_max=0),
        DayState(day=seal.day + timedelta(days=2), status="unsealed", sealed=None, waiting_max=0),
        DayState(day=seal.day + timedelta(days=3), status="not_over", sealed=None, waiting_max=7),
        *(DayState(day=date(2026, 2, day), status="quiet", sealed=None, waiting_max=0) for day in (1, 2, 3, 5)),
        DayState(
            day=date(2025, 6, 1), status="unproven", sealed=summarise(seal), waiting_max=0, unproven_run="by-hand"
        ),
        DayState(day=date(2025, 6, 2), status="unproven", sealed=None, waiting_max=0),
    ]
    printed = Printed(width)
    print_states(printed.console, stream, states)
    assert [tuple(row.values()) for row in printed.rows("Day")] == [
        (
            "2026-01-01",
            "sealed, v12",
            "12,345,678",
            "123,456",
            "unchecked",
            "12,345 offsets lost, rolled back to v3, ≤ 54,321 waiting",
        ),
        ("2026-01-02", "not sealed", "", "", "", ""),
        ("2026-01-03", "not sealed yet", "", "", "", ""),
        ("2026-01-04", "not over", "", "", "", "≤ 7 waiting"),
        ("2026-02-01", "no records", "", "", "", "to 2026-02-03"),
        ("2026-02-05", "no records", "", "", "", ""),
        ("2025-06-01", "published, not proven", "", "", "", "rows of run by-hand, v12 was sealed before"),
        ("2025-06-02", "published, not proven", "", "", "", "rows that Tidemark did not publish"),
    ]
    assert f"Days of {STREAM}, {stream.time_zone}" in printed.text().splitlines()


@pytest.mark.parametrize("width", [60, NARROW, WIDE, PIPE_WIDTH])
def test_the_status_of_streams_shows_names_layers_and_last_runs_whole(width: int) -> None:
    layer = LayerRow(
        layer="archive",
        alive=False,
        state="running",
        age_seconds=7200.0,
        lag_records=None,
        lag_seconds=None,
        retention_hours_left=None,
        error=None,
    )
    run = LastRun(
        name="r",
        verdict="complete with losses",
        title="",
        sentences=(),
        days=(),
        ended_at=datetime.now(UTC) - timedelta(days=5),
        report="k",
    )
    row = StreamRow(
        stream=STREAM,
        fine=False,
        problems=(),
        layers=(layer, replace(layer, layer="speed", state=None), replace(layer, layer="departures", state="failed")),
        days=(),
        last_sealed=date(2026, 1, 14),
        overdue=(),
        unproven=(),
        waiting=0,
        last_run=run,
        running=None,
    )
    printed = Printed(width)
    print_streams(
        printed.console, [row, replace(row, stream="s", fine=None, layers=(), last_sealed=None, last_run=None)]
    )
    found = [{name: "".join(cell.split()) for name, cell in item.items()} for item in printed.rows("Fine")]
    layers = "archivestale,speedneverstarted,departuresfailed"
    last = "completewithlosses,5dago"
    assert [tuple(item.values()) for item in found] == [
        (STREAM, "no", layers, "2026-01-14", last),
        ("s", "unknown", "", "none", "none"),
    ]


@WIDTHS
def test_delivery_shows_every_count_whole(width: int) -> None:
    zone = ZoneInfo("America/New_York")
    counts = {
        "archived": 12_345_678,
        "delivered": 12_345_600,
        "missing": 10,
        "duplicated": 1_234,
        "unexpected": 7,
        "replayed": 3,
        "pending": 2,
        "not_archived": 1,
    }
    example = {"outcome": "unexpected", "kind": "changed", "offset": 1, "topic": TOPIC, "partition": 1, "at": 70}
    hour = datetime(2026, 1, 14, 9, tzinfo=zone).isoformat()
    value: dict[str, Any] = {
        "stream": STREAM,
        "verdict": "findings",
        "from": hour,
        "to": hour,
        "time_zone": str(zone),
        "hours": [{"hour": hour, "partition": 123, **counts, "examples": [example]}],
        "counts": {**counts, "missing": 0},
        "sentences": ["s " * 100],
    }
    printed = Printed(width)
    print_audit(printed.console, value)
    others = "1,234 duplicated, 7 unexpected, 3 replayed, 2 pending, 1 not archived"
    assert [tuple(row.values()) for row in printed.rows("Hour")] == [
        (hour, "123", "12,345,678", "12,345,600", f"10 missing, {others}"),
        ("the whole span", "", "12,345,678", "12,345,600", others),
    ]
    found = f"found as {TOPIC} partition 1 offset 70"
    assert f"unexpected changed: source partition 123 offset 1, {hour}, {found}" in printed.text().splitlines()


@WIDTHS
def test_replay_shows_topics_whole(settings: Settings, make_stream: MakeStream, width: int) -> None:
    topics = {"topic": TOPIC.replace("dead-letters", "live"), "dead_letter_topic": TOPIC}
    run = Run.open(make_stream(name=STREAM, speed=topics).name, "a-run", settings)
    done = Replayed(plans=(3,), read=1_234_567, published=1_234_000, dead_again=560, duplicates=7)
    printed = Printed(width)
    print_replayed(printed.console, run, done)
    assert [tuple(row.values()) for row in printed.rows("Records")] == [
        (f"published to {topics['topic']}", "1,234,000"),
        (f"dead again, back on {TOPIC}", "560"),
        ("duplicate dead letters", "7"),
        ("not this stream's, skipped", "0"),
        ("read", "1,234,567"),
    ]
    assert f"Dead letters of stream {STREAM} on {TOPIC}" in printed.text().splitlines()


@WIDTHS
def test_verify_shows_what_a_proof_was_derived_from_whole(width: int) -> None:
    source = f"42 objects of {STREAM} in s3://tidemark/data"
    check = ProofPart(name="quarantine", total=12_345, derived_from=source)
    found = Verification(stream=STREAM, day="2026-01-14", version=12, seal="seals/x.json", lost=0, checks=(check,))
    printed = Printed(width)
    print_proof(printed.console, found)
    assert printed.rows("Check") == [{"Check": "quarantine", "Result": "12,345 differences", "Derived from": source}]


def test_where_prints_long_values_on_lines_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A terminal wraps such a line; it stays one line when it is copied or piped."""
    monkeypatch.setenv("COLUMNS", str(NARROW))
    log = TopicPartition(topic=TOPIC, topic_id="AbC", partition=1)
    key = f"data/{STREAM}/year=2026/month=01/day=14/{TOPIC}+1+{0:020}+{50:020}+0000.parquet"
    copy = RecordCopy(log=log, range=OffsetRange(start=0, end=50), writer="w", batch=1, manifest="m", object=key)
    located = Located(
        stream=STREAM, topic=TOPIC, partition=1, offset=42, day=None, event_time=None, copies=(copy,), seals=()
    )
    monkeypatch.setattr(where, "connect_s3", lambda _stack: Deployment(tmp_path))
    monkeypatch.setattr(where, "locate", lambda *_arguments: located)
    where.print_location(None, STREAM, TOPIC, 1, 42, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert f"{TOPIC}, partition 1, offset 42" in lines
    assert f"  object               {key}" in lines


@dataclass
class Deployment:
    streams_dir: Path
