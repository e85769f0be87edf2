"""``tidemark delivery``: the live and the dead-letter topic against the archive, over any span."""

import os
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.core.manifest import canonical_json
from tidemark.delivery_audit.audit import DELIVERY, audit_delivery
from tidemark.delivery_audit.report import EXIT_CODES
from tidemark.delivery_audit.span import parse_span
from tidemark.run import Run, run_name
from tidemark.spark.session import quiet_session
from tidemark.stack.java import BRIEF_JVM, java_command

HOURS_MAX = 48
EXAMPLES_MAX = 5
COLOURS = {"pass": "green", "findings": "red", "unknown": "yellow"}
COLUMNS = ("archived", "delivered", "missing", "duplicated", "unexpected", "replayed", "pending", "not_archived")


def print_delivery(stack: str | None, stream_name: str, start: str | None, end: str | None) -> int:
    """Audit, print and save; the exit code of the verdict. Raises what ``audit_delivery`` and ``parse_span`` raise."""
    settings = connect(stack)
    now = datetime.now(UTC)
    run = Run.open(stream_name, run_name(f"delivery-{now:%Y%m%dT%H%M%S%fZ}"), settings)
    span = parse_span(start, end, run.stream.zone, now)
    java_command()
    os.environ.update(BRIEF_JVM)
    console = Console(soft_wrap=True)
    with console.status("starting Spark, some ten seconds"):
        spark = quiet_session(settings, f"tidemark-delivery-{stream_name}")
    try:
        with console.status("comparing topics and archive"):
            audit_delivery(run, spark, span)
    finally:
        spark.stop()
    value = run.require(DELIVERY)
    print_audit(console, value)
    console.print(Text(f"saved as s3://{run.store.bucket}/{run.key(DELIVERY.name)}"))
    console.print(Text(canonical_json({key: value[key] for key in ("stream", "verdict", "counts")}).decode().strip()))
    return EXIT_CODES[value["verdict"]]


def print_audit(console: Console, value: dict[str, Any]) -> None:
    """The verdict, a row per hour and partition in which something is not right, and examples."""
    console.print(Text(f"{value['stream']}: {value['verdict']}", style=COLOURS[value["verdict"]]))
    console.print(Text(f"{value['from']} to {value['to']} ({value['time_zone']})"))
    table = Table()
    table.add_column("hour")
    table.add_column("partition", justify="right")
    for name in COLUMNS:
        table.add_column(name.replace("_", " "), justify="right")
    wrong = [item for item in value["hours"] if item["examples"]]
    for item in wrong[:HOURS_MAX]:
        table.add_row(item["hour"], str(item["partition"]), *(f"{item[name]:,}" for name in COLUMNS))
    if len(wrong) > HOURS_MAX:
        table.add_row(f"and {len(wrong) - HOURS_MAX:,} more", "", *("" for _ in COLUMNS))
    table.add_section()
    table.add_row("the whole span", "", *(f"{value['counts'][name]:,}" for name in COLUMNS))
    console.print(table)
    for sentence in value["sentences"]:
        console.print(Text(sentence))
    for line in _examples(value):
        console.print(Text(line))


def _examples(value: dict[str, Any]) -> Iterator[str]:
    shown: Counter[str] = Counter()
    for item in value["hours"]:
        for example in item["examples"]:
            what = " ".join(part for part in (example["outcome"], example["kind"]) if part)
            shown[what] += 1
            if shown[what] > EXAMPLES_MAX:
                continue
            if example["topic"] is None:
                found = "on neither topic"
            else:
                found = f"found as {example['topic']} partition {example['partition']} offset {example['at']}"
            yield f"{what}: source partition {item['partition']} offset {example['offset']}, {item['hour']}, {found}"
