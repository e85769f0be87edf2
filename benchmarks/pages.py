"""Measures the pages in Airflow with 50 streams of 100 partitions, each with three years of sealed days.

Every topic, seal, summary, saved status and report of the last run is there, in a real broker and the local S3 server:
the seals of a stream differ only in their days. There are no archived objects and no tables. A browser's requests go to
Airflow's own app, as a user with the right to read the DAGs, one at a time, to another stream each time. Each file of
the DAG folder is parsed in a process of its own, as Airflow's DAG processor does it.

The last line is JSON: median and 95th percentile of each page in ms, the CPU time of parsing, and the load of the
machine.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import yaml
from confluent_kafka import Producer
from rich.table import Table

from benchmarks.common import console, progress
from tests.conftest import TRANSFORM
from tests.core.worlds import seal_of, sealed_log
from tests.dags.test_dags import parse
from tests.web.conftest import PagesServer, serve
from tidemark.core.day_summary import month_json, summarise
from tidemark.core.heartbeat import Heartbeat
from tidemark.core.layout import Layout
from tidemark.core.offsets import TopicPartition
from tidemark.core.outcome import Outcome
from tidemark.core.seal import Seal, parse_seal
from tidemark.definitions.stream import Stream, load_stream
from tidemark.inspect.saved_status import save_status
from tidemark.installation import PROJECT
from tidemark.kafka.topics import describe_topic, ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.local import LocalStack

SEALED, ARCHIVED, WRITTEN = 1, 2, 3  # the next offsets of each partition
FILES = ("streams.py", "stream_definitions.py")
PARSES = 5
_AT_ONCE = 16


def main() -> None:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=100, help="of each stream's topic")
    parser.add_argument("--days", type=int, default=3 * 365, help="sealed days of each stream, up to yesterday")
    parser.add_argument("--requests", type=int, default=100, help="to each page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as folder:
        streams = Path(folder, "streams")
        names = define(streams, options.streams)
        with LocalStack("bench-pages", root=PROJECT, streams_dir=streams, fresh=True) as stack:
            days = build(stack.settings, names, options.partitions, options.days)
        # Started again, because the servers are still busy with what was written.
        with LocalStack("bench-pages", root=PROJECT, streams_dir=streams) as stack:
            os.environ.update(stack.env)
            save_status(stack.settings, names, now=datetime.now(UTC))
            result = measure(Path(folder), stack, names, days, options.requests)
    table = Table("page", "median ms", "p95 ms")
    for name, (median, p95) in result["ms"].items():
        table.add_row(name, str(median), str(p95))
    console.print(table)
    console.print(json.dumps(result), soft_wrap=True, highlight=False)


def define(folder: Path, number: int) -> list[str]:
    """Write the definitions of the streams."""
    folder.mkdir()
    names = [f"stream_{index:02}" for index in range(number)]
    for name in names:
        own = {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead-letter"}
        wanted = {"name": name, "topic": name, "value_schema": "f STRING", "speed": own, "batch": {"wait_seconds": 0}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
        (folder / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    return names


def build(settings: Settings, names: Sequence[str], partitions: int, number: int) -> list[date]:
    """Make topics, seals, summaries, heartbeats and statuses of all streams; the sealed days."""
    now = datetime.now(UTC)
    yesterday = now.date() - timedelta(days=1)
    days = [yesterday - timedelta(days=back) for back in reversed(range(number))]
    with progress() as bar:
        task = bar.add_task("streams", total=len(names))
        for name in names:
            stream = load_stream(name, settings.streams_dir)
            ensure_topic(settings.kafka, name, partitions=partitions, config={"retention.ms": str(7 * 86_400_000)})
            write(settings, name, partitions)
            seal_days(settings, stream, days)
            beat(settings, name, partitions, now)
            report(settings, name, yesterday, now)
            bar.advance(task)
    return days


def write(settings: Settings, topic: str, partitions: int) -> None:
    """The same records in each partition."""
    producer = Producer(settings.kafka.client())
    for _ in range(WRITTEN):
        for partition in range(partitions):
            producer.produce(topic, b"{}", partition=partition)
    if left := producer.flush(60):
        raise SystemExit(f"{left} records of {topic} were not accepted")


def seal_days(settings: Settings, stream: Stream, days: Sequence[date]) -> None:
    """A seal of each day, and the summaries of each month."""
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    first = make_seal(stream, days[0], describe_topic(settings.kafka, stream.topic))
    body, own = first.to_json(), str(days[0]).encode()
    parse_seal(body.replace(own, str(days[-1]).encode()), where=stream.name)

    def put_seal(day: date) -> None:
        store.put(layout.seal_key(day, 1), body.replace(own, str(day).encode()))

    def put_month(month: str) -> None:
        seals = [make_seal(stream, day, ()) for day in days if f"{day:%Y-%m}" == month]
        store.put(layout.summary_key(month), month_json(map(summarise, seals)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(put_seal, days))
        list(pool.map(put_month, sorted({f"{day:%Y-%m}" for day in days})))


def make_seal(stream: Stream, day: date, logs: Sequence[TopicPartition]) -> Seal:
    """The first version of a day with a million records."""
    moment = datetime(day.year, day.month, day.day, 1, tzinfo=UTC) + timedelta(days=1)
    return replace(
        seal_of(day, [sealed_log(log, 0, SEALED) for log in logs], run=f"scheduled-{day}"),
        stream=stream.name,
        time_zone=stream.time_zone,
        sealed_at_us=round(moment.timestamp()) * 1_000_000,
        rows_read=1_000_000,
        rows_published=999_990,
        rows_quarantined=10,
    )


def beat(settings: Settings, name: str, partitions: int, now: datetime) -> None:
    """The archive layer's heartbeat."""
    heartbeat = Heartbeat(
        deployment=settings.deployment,
        stream=name,
        layer="archive",
        state="running",
        time=now,
        version=1,
        writer="query",
        batch=1,
        positions=tuple((partition, ARCHIVED) for partition in range(partitions)),
        lag_records=partitions,
        lag_seconds=1.0,
        overflow_rows=0,
        out_of_bounds_rows=0,
        alarm_until=None,
        error=None,
    )
    ObjectStore(settings).put(Layout(prefix=settings.prefix, stream=name).heartbeat_key("archive"), heartbeat.to_json())


def report(settings: Settings, name: str, day: date, now: datetime) -> None:
    """What the last run's report says of it, and which run that is."""
    store, layout, run = ObjectStore(settings), Layout(prefix=settings.prefix, stream=name), f"scheduled-{day}"
    verdict = {"status": "complete", "title": f"{day} is complete", "sentences": ["Everything is proven."]}
    found = {"run": run, "verdict": verdict, "days": [{"day": str(day)}], "unchanged": []}
    result = {**found, "generated_at": now.isoformat(), "html_key": layout.run_key(run, "report.html")}
    outcome = Outcome(started_at=now.isoformat(), seconds=1.0, status="ok", error=None, result=result)
    store.put(layout.run_key(run, "report.json"), json.dumps(asdict(outcome)).encode())
    store.put(layout.last_run_key, run.encode())


def measure(
    folder: Path, stack: LocalStack, names: Sequence[str], days: Sequence[date], requests: int
) -> dict[str, Any]:
    """Times of the pages and of parsing."""
    loads = [os.getloadavg()[0]]
    parsing = {f"parsing {file}": figures(parse_times(folder, stack, file, names)) for file in FILES}
    result: dict[str, Any] = {"ms": parsing, "cores": os.cpu_count()}
    (home := folder / "airflow").mkdir()
    serving = contextmanager(serve)
    with serving(home, stack.env) as server:
        for name, path in pages(names, days).items():
            result["ms"][name] = figures(times(server, path, requests))
            loads.append(os.getloadavg()[0])
            console.print(f"{name}: {result['ms'][name]} ms, load {loads[-1]:.1f}")
    result["load"] = [round(min(loads), 1), round(max(loads), 1)]
    return result


def parse_times(folder: Path, stack: LocalStack, file: str, names: Sequence[str]) -> list[float]:
    """CPU seconds of parsing a file of the DAG folder, each time in a new process."""
    seconds = []
    for number in range(PARSES):
        (home := folder / f"{file}-{number}").mkdir()
        found = parse(stack.streams_dir, home, PROJECT / "dags" / file)
        reconciled = [name for name in found["dags"] if name.startswith("reconcile_")]
        if len(reconciled) not in {0, len(names)} or found["errors"]:
            raise SystemExit(f"{file} has {len(reconciled)} streams of {len(names)}: {found['errors']}")
        seconds.append(found["cpu_seconds"])
    return seconds


def pages(names: Sequence[str], days: Sequence[date]) -> dict[str, Callable[[int], str]]:
    """The path of the nth request to each page."""

    def stream(number: int) -> str:
        return f"/streams/{names[number % len(names)]}"

    return {
        "streams": lambda _: "/",
        "card": lambda _: "/card.json",
        "stream": stream,
        "stream, an earlier year": lambda number: f"{stream(number)}?year={days[0].year}",
        "tide": lambda number: f"{stream(number)}/tide",
        "day": lambda number: f"{stream(number)}/days/{days[-1 - number * 7 % len(days)]}",
    }


def times(server: PagesServer, path: Callable[[int], str], requests: int) -> list[float]:
    """Seconds of each request, after one that does not count."""
    with server.client("vera") as client:
        return [timed(client, path(number)) for number in range(requests + 1)][1:]


def timed(client: httpx.Client, path: str) -> float:
    """Seconds of one request. A page that could not read a part counts for nothing."""
    started = time.monotonic()
    answer = client.get(path)
    seconds = time.monotonic() - started
    if answer.status_code != httpx.codes.OK or "could not be read" in answer.text:
        sys.stderr.write(answer.text)
        raise SystemExit(f"{path} answered {answer.status_code}, after {seconds:.1f} s")
    return seconds


def figures(seconds: Sequence[float]) -> tuple[int, int]:
    """Median and 95th percentile in ms."""
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return round(statistics.median(seconds) * 1000), round(p95 * 1000)


if __name__ == "__main__":
    main()
