"""``tidemark delivery``: the live topic and the dead-letter topic compared with the archive."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import make_table, open_console, plain
from tidemark.cli.spark import command_spark
from tidemark.core.delivery import DELIVERY, Verdict
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.report import EXIT_CODES
from tidemark.delivery_audit.span import parse_span
from tidemark.run import Run, run_name

HOURS_MAX = 48
EXAMPLES_MAX = 5
COLOURS = {"pass": "green", "findings": "red", "unknown": "yellow"}
OTHERS = ("missing", "duplicated", "unexpected", "replayed", "pending", "not_archived")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """An audit of the delivery. ``report`` is what was saved, with its hours, examples and sentences."""

    stream: str
    verdict: Verdict
    counts: dict[str, int]
    saved: str
    report: dict[str, Any]


def print_delivery(stack: str | None, stream_name: str, start: str | None, end: str | None, *, as_json: bool) -> int:
    """Audit the delivery, print and save the result. Return the exit code of the verdict."""
    settings = connect_s3(stack)
    now = datetime.now(UTC)
    run = Run.open(stream_name, run_name(f"delivery-{now:%Y%m%dT%H%M%S%fZ}"), settings)
    span = parse_span(start, end, run.stream.zone, now)
    console = Console(stderr=True) if as_json else open_console()
    with (
        command_spark(settings, f"tidemark-delivery-{stream_name}", console) as spark,
        console.status("comparing topics and archive"),
    ):
        audit_delivery(run, spark, span)
    value = run.require(DELIVERY).details or {}
    saved = f"s3://{run.store.bucket}/{run.key(DELIVERY.name)}"
    if as_json:
        result = DeliveryResult(
            stream=stream_name, verdict=value["verdict"], counts=value["counts"], saved=saved, report=value
        )
        print_result("delivery", result)
    else:
        print_audit(console, value)
        console.print(plain(f"saved as {saved}"))
    return EXIT_CODES[value["verdict"]]


def print_audit(console: Console, value: Mapping[str, Any]) -> None:
    """The verdict, one row per hour and partition with a finding, and examples."""
    console.print(plain(f"{value['stream']}: {value['verdict']}", style=COLOURS[value["verdict"]]))
    console.print(plain(f"{value['from']} to {value['to']} ({value['time_zone']})"))
    names = ("Hour", "Partition", "Archived", "Delivered", "Other counts")
    table = make_table(*names, numbers=names[1:4], fold=("Other counts",))
    with_findings = [item for item in value["hours"] if item["examples"]]
    for item in with_findings[:HOURS_MAX]:
        table.add_row(item["hour"], str(item["partition"]), *_counts(item))
    if len(with_findings) > HOURS_MAX:
        table.add_row(f"and {len(with_findings) - HOURS_MAX:,} more")
    table.add_section()
    table.add_row("the whole span", "", *_counts(value["counts"]))
    console.print(table)
    for sentence in value["sentences"]:
        console.print(plain(sentence))
    for line in _examples(value):
        console.print(plain(line))


def _counts(item: Mapping[str, int]) -> tuple[str, str, str]:
    others = ", ".join(f"{item[name]:,} {name.replace('_', ' ')}" for name in OTHERS if item[name])
    return f"{item['archived']:,}", f"{item['delivered']:,}", others


def _examples(value: Mapping[str, Any]) -> Iterator[str]:
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
