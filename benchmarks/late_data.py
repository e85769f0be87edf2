"""Measures how long a late record takes to reach readers, for a stream with ``batch.late_data: as_archived``.

A local stack runs Kafka, S3, the archive stream and a real Airflow with its schedules. Three days are sealed. Then late
records of these days arrive evenly, and a reader scans the published table. A record's time is from its acknowledgement
by Kafka to the end of the first scan that has it. The last line is JSON, in seconds.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from confluent_kafka import Producer

from benchmarks.common import console
from tidemark.core.days import day_start, days_between, last_ended
from tidemark.installation import PROJECT, SPARK_APPS
from tidemark.kafka.topics import ensure_topic
from tidemark.settings import Settings
from tidemark.stack.airflow import LocalAirflow
from tidemark.stack.local import LocalStack
from tidemark.tables.reader import load_table

NAME = "late"
DAYS = 3
DAY_S = 86_400
SCAN_EVERY_S = 10
PATIENCE_S = 3_600
DEFINITION = {
    "name": NAME,
    "topic": NAME,
    "value_schema": "n BIGINT",
    "speed": {"topic": f"{NAME}.live", "dead_letter_topic": f"{NAME}.dead"},
    "batch": {"late_data": "as_archived", "wait_seconds": 0},
}


def main() -> None:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="how long late records arrive (60)")
    parser.add_argument("--per-day", type=int, default=10_000, help="late records per day, evenly (10,000)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-late-"))
    (folder / f"{NAME}.yaml").write_text(yaml.safe_dump(DEFINITION), encoding="utf-8")
    try:
        with LocalStack("bench-late", root=PROJECT, fresh=True) as stack:
            os.environ.update(stack.env, TIDEMARK_STREAMS_DIR=str(folder))
            settings = stack.settings.model_copy(update={"streams_dir": folder})
            result = _measure(stack, settings, options.minutes * 60, DAY_S / options.per_day)
    finally:
        shutil.rmtree(folder)
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def _measure(stack: LocalStack, settings: Settings, seconds: float, pause_s: float) -> dict[str, float]:
    last = last_ended(datetime.now(UTC), UTC)
    noons = [day_start(day, UTC) + timedelta(hours=12) for day in days_between(last - timedelta(days=DAYS - 1), last)]
    ensure_topic(settings.kafka, NAME, partitions=1, config={"retention.ms": "-1"})
    sender = _Sender(settings)
    for noon in noons:
        sender.send(noon)
    with _archiving(settings):
        airflow = LocalAirflow(stack, extra_env={"TIDEMARK_STREAMS_DIR": str(settings.streams_dir)})
        try:
            airflow.start()
            _seal(airflow, noons[0], noons[-1])
            started, late, seen = time.monotonic(), 0, dict[int, float]()
            scanned = float("-inf")
            while len(seen) < sender.count and time.monotonic() < started + seconds + PATIENCE_S:
                if time.monotonic() < started + seconds and time.monotonic() >= started + late * pause_s:
                    sender.send(noons[late % DAYS])
                    late += 1
                if time.monotonic() >= scanned + SCAN_EVERY_S:
                    scanned = time.monotonic()
                    offsets = _published(settings)
                    now = time.monotonic()
                    seen |= dict.fromkeys(offsets - seen.keys(), now)
                time.sleep(0.2)
            runs = airflow.api._authorised("GET", f"/api/v2/dags/reconcile_{NAME}/dagRuns")  # noqa: SLF001
            # The last run may have published without having ended yet.
            count = sum(item["state"] != "failed" and "__late__" in item["dag_run_id"] for item in runs["dag_runs"])
        finally:
            airflow.stop()
    times = sorted(seen[offset] - sender.sent_at[offset] for offset in seen if offset >= DAYS)
    return {
        "late_records": late,
        "published": len(times),
        "runs": count,
        **{f"p{part}": round(times[min(len(times) * part // 100, len(times) - 1)], 1) for part in (50, 95)},
        "max": round(times[-1], 1),
    }


class _Sender:
    """Sends records with a number as their value, and notes when Kafka acknowledged each offset."""

    def __init__(self, settings: Settings) -> None:
        self.producer = Producer(settings.kafka.client({"acks": "all"}))
        self.sent_at: dict[int, float] = {}

    @property
    def count(self) -> int:
        return len(self.sent_at)

    def send(self, moment: datetime) -> None:
        offset = len(self.sent_at)
        value = json.dumps({"n": offset}).encode()
        self.producer.produce(NAME, value, timestamp=round(moment.timestamp() * 1000))
        if self.producer.flush(60):
            raise SystemExit("Kafka did not acknowledge a record within a minute")
        self.sent_at[offset] = time.monotonic()


@contextmanager
def _archiving(settings: Settings) -> Iterator[None]:
    """The archive stream runs, as a program of its own."""
    log = settings.streams_dir / "archive.log"
    with log.open("w") as output:
        arguments = [sys.executable, str(SPARK_APPS / "archive_stream.py"), NAME]
        process = subprocess.Popen(arguments, cwd=PROJECT, env={**os.environ}, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _seal(airflow: LocalAirflow, first: datetime, last: datetime) -> None:
    """Reconcile the days by a run that a person starts, and let the watch and the stream's DAG run."""
    api, dag = airflow.api, f"reconcile_{NAME}"
    for name in (dag, "tidemark_watch"):
        while not api.dag_known(name):
            time.sleep(1)
    api.unpause(dag)
    run = api.trigger(dag, {"from_day": f"{first:%Y-%m-%d}", "to_day": f"{last:%Y-%m-%d}"})
    while (state := api.run_state(dag, run)) not in {"success", "failed"}:
        time.sleep(2)
    if state != "success":
        raise SystemExit(f"the run that seals the days {state}: {api.task_states(dag, run)}")
    api.unpause("tidemark_watch")


def _published(settings: Settings) -> set[int]:
    """The offsets that readers have."""
    table = load_table(settings, NAME)
    if table is None or table.current_snapshot() is None:
        return set()
    return set(table.scan(selected_fields=("_offset",)).to_arrow()["_offset"].to_pylist())


if __name__ == "__main__":
    main()
