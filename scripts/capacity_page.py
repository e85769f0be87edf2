"""The tables and the picture of docs/explanation/capacity.md, worked out by ``tidemark.core``.

A table of the page follows a comment with its name. ``tests/test_capacity_page.py`` compares, and writes them with
``--write-tables``.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from math import log10
from pathlib import Path
from typing import Any

from tidemark.core.capacity import (
    MIB,
    ArchiveSettings,
    Load,
    archive_day,
    batch_requests,
    manifest_bytes,
    speed_day,
    task_memory,
)
from tidemark.core.requests import (
    ASSUMED_PRICES,
    Requests,
    archive_commit,
    checkpoint_batch,
    data_object,
    heartbeats,
    lease_checks,
    reconcile_run,
)

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "capacity.md"
PICTURE = PAGE.parent.parent / "capacity.svg"
MEASURED = Path(__file__).parent.parent / "benchmarks" / "s3_requests.json"
TRIGGERS = {"10 s": 10.0, "60 s": 60.0, "15 min": 900.0}
PARTITIONS = (1, 16, 100, 1_000, 10_000, 100_000)
MARK = re.compile(r"(<!-- table: (\w+) -->\n\n)(?:\|.*\n)*")
TEN_TB = 10e12
PLAN_RANGE_S = 0.0008  # 79.8 s for 100,000 new ranges: see performance.md


def written(page: str) -> str:
    """The page with each table as it has to be."""
    return MARK.sub(lambda found: found[1] + TABLES[found[2]](), page)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _dollars(value: float) -> str:
    if 0 < value < 0.005:
        return "below $0.01"
    return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"


def _bytes(value: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.3g} {unit}" if value < 1000 * size else f"{value / size:,.0f} {unit}"
    return f"{value:,.0f} B"


def parts() -> str:
    """The requests of each part of a stream's life."""
    rows: dict[str, Requests] = {
        "Spark's checkpoint, per batch of either stream": checkpoint_batch(),
        "the archive's driver, per batch": archive_commit(),
        "each data object up to `part_bytes`": data_object(1, 2),
        "each data object of 4 parts": data_object(4, 1),
        "heartbeat, per minute without a batch": heartbeats(60, float("inf")),
        "lease, per minute": lease_checks(60),
    }
    kinds = ("put", "list", "post", "part", "get", "head", "delete")
    head = ("Part", "PUT", "LIST", "POST", "parts", "GET", "HEAD", "DELETE")
    return _table(head, ((name, *(_number(getattr(item, kind)) for kind in kinds)) for name, item in rows.items()))


def counted() -> str:
    """What the benchmark counted in a batch."""
    names = {
        "p1": "1 partition",
        "p4": "4 partitions",
        "p16": "16 partitions",
        "p1_f10": "10 folders",
        "p4_f10": "4 partitions, 10 folders",
        "p1_f100": "100 folders",
        "parts": "13 MB in parts of 5 MiB",
        "at_least_once": "speed, at least once",
        "exactly_once": "speed, exactly once",
    }
    found = measured()
    rows = []
    for key, name in names.items():
        item = Requests(**found[key]["counted"])
        cells = (item.put, item.post + item.part, item.list, item.get, item.head, item.delete)
        rows.append((name, *(_number(value) for value in cells)))
    return _table(("A batch with", "PUT", "in parts", "LIST", "GET", "HEAD", "DELETE"), rows)


def measured() -> dict[str, Any]:
    """The benchmark's last line."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def archive() -> str:
    """Objects and costs of an archive's day."""
    rows = []
    idle = Load(partitions=1, records_per_second=0)
    for name, load in {"idle": idle, **{_number(number): Load(partitions=number) for number in PARTITIONS}}.items():
        days = [archive_day(ArchiveSettings(trigger_seconds=s), load) for s in TRIGGERS.values()]
        costs = (_dollars(ASSUMED_PRICES.cost(day.requests)) for day in days)
        rows.append((name, *(_number(day.objects) for day in days), *costs))
    head = ("Partitions", *(f"objects, {name}" for name in TRIGGERS), *(f"cost, {name}" for name in TRIGGERS))
    return _table(head, rows)


def speed() -> str:
    """Requests and costs of a speed stream's day."""
    rows = []
    for seconds in (0.5, 1, 2, 5, 10, 60):
        found = speed_day(seconds, Load(partitions=1)).requests
        rows.append((f"{seconds:g}", _number(found.total), _dollars(ASSUMED_PRICES.cost(found))))
    return _table(("`speed.trigger_seconds`", "requests a day", "cost a day"), rows)


def folders() -> str:
    """The effect of folders: 16 partitions, 20,000 records/s of 500 bytes."""
    rows = []
    for number in (1, 10, 100, 1_000):
        load = Load(partitions=16, records_per_second=20_000, record_bytes=500, folders=number)
        settings = ArchiveSettings(trigger_seconds=60)
        day = archive_day(settings, load)
        rows.append(
            (
                _number(number),
                _number(day.objects),
                _number(day.records_per_object or 0),
                _bytes((day.records_per_object or 0) * load.record_bytes),
                _dollars(ASSUMED_PRICES.cost(day.requests)),
                f"{task_memory(settings, load) / MIB:,.0f} MiB",
            )
        )
    return _table(("Folders", "objects a day", "records each", "bytes each", "cost a day", "memory of a task"), rows)


def growth() -> str:
    """10 TB a day of 1 kB records, by partitions and trigger."""
    rows = []
    for partitions in (100, 1_000, 10_000, 100_000):
        for name, seconds in (("60 s", 60.0), ("15 min", 900.0), ("1 h", 3_600.0)):
            load = Load(partitions=partitions, records_per_second=TEN_TB / 1_000 / 86_400, record_bytes=1_000)
            settings = ArchiveSettings(trigger_seconds=seconds, max_offsets_per_trigger=10**12)
            day = archive_day(settings, load)
            ranges = day.batches * partitions
            rows.append(
                (
                    _number(partitions),
                    name,
                    _number(day.objects),
                    _bytes(TEN_TB / day.objects),
                    _dollars(ASSUMED_PRICES.cost(day.requests)),
                    _bytes(manifest_bytes(partitions, day.objects / day.batches)),
                    _number(ranges),
                    _duration(ranges * PLAN_RANGE_S),
                )
            )
    head = ("Partitions", "trigger", "objects a day", "bytes each", "cost a day", "a manifest", "ranges a day", "plan")
    return _table(head, rows)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7_200 else f"{seconds / 3_600:,.0f} h"


def reconcile() -> str:
    """Reconcile runs that were counted, and one of a larger day."""
    rows = []
    for key, item in measured().items():
        if key.startswith("day_"):
            partitions, batches = (int(number) for number in re.findall(r"\d+", key))
            rows.append(("counted", *_run(partitions * batches, batches, Requests(**item["counted"]))))
    objects, batches = 138_240, 8_640
    larger = reconcile_run(objects=objects, manifests=batches, folders=16)
    rows.append(("estimated", *_run(objects, batches, larger)))
    return _table(("", "objects of the day", "new manifests", "writes and lists", "reads", "cost of the run"), rows)


def _run(objects: int, manifests: int, requests: Requests) -> tuple[str, ...]:
    numbers = (_number(value) for value in (objects, manifests, requests.writes, requests.reads))
    return (*numbers, _dollars(ASSUMED_PRICES.cost(requests)))


def example() -> str:
    """One batch of 16 partitions, in steps."""
    found = batch_requests(ArchiveSettings(), Load(partitions=16))
    fixed = checkpoint_batch() + archive_commit()
    day = archive_day(ArchiveSettings(), Load(partitions=16)).requests
    beats = heartbeats(86_400, 10)
    rows = [
        ("checkpoint and commit of a batch", _number(fixed.writes), _number(fixed.reads)),
        ("16 objects", _number(found.writes - fixed.writes), _number(found.reads - fixed.reads)),
        ("× 8,640 batches", _number(8_640 * found.writes), _number(8_640 * found.reads)),
        ("heartbeats, lease", _number(beats.writes), _number(lease_checks(86_400).reads)),
        ("a day", _number(day.writes), _number(day.reads)),
        (
            "price",
            _dollars(day.writes / 1e6 * ASSUMED_PRICES.million_writes),
            _dollars(day.reads / 1e6 * ASSUMED_PRICES.million_reads),
        ),
    ]
    return _table(("", "writes and lists", "reads"), rows)


TABLES: dict[str, Callable[[], str]] = {
    item.__name__: item for item in (parts, example, counted, archive, speed, folders, reconcile, growth)
}

_STYLE = """\
    .page { fill: #ffffff; stroke: #d0d7de; }
    text { fill: #1f2933; font-size: 15px; text-anchor: middle; }
    .b { font-weight: 600; }
    .s { font-size: 13px; fill: #48535f; }
    .l { text-anchor: start; }
    .r { text-anchor: end; }
    .grid { stroke: #d0d7de; stroke-width: 1; }
    .line { fill: none; stroke-width: 2.4; }
    .c0 { stroke: #b3361e; } .t0 { fill: #b3361e; }
    .c1 { stroke: #2b6cb0; } .t1 { fill: #2b6cb0; }
    .c2 { stroke: #2f7d4a; } .t2 { fill: #2f7d4a; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #12181f; stroke: #3b4652; }
      text { fill: #e6ebf0; }
      .s { fill: #b4c0cc; }
      .grid { stroke: #3b4652; }
      .c0 { stroke: #f0816b; } .t0 { fill: #f0816b; }
      .c1 { stroke: #5b9bd8; } .t1 { fill: #5b9bd8; }
      .c2 { stroke: #58ad76; } .t2 { fill: #58ad76; }
    }
"""
_FONTS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 330, 300, 70, 370


def picture() -> str:
    """Two plots on logarithmic axes: objects and costs of a day over partitions, a line for each trigger."""
    at = [number * 10**power for power in range(5) for number in (1, 2, 4, 7)] + [100_000]
    days = {
        name: [archive_day(ArchiveSettings(trigger_seconds=s), Load(partitions=p)) for p in at]
        for name, s in TRIGGERS.items()
    }
    objects = {name: [day.objects for day in found] for name, found in days.items()}
    costs = {name: [ASSUMED_PRICES.cost(day.requests) for day in found] for name, found in days.items()}
    dollars = {-2: "$0.01", -1: "$0.10", 0: "$1", 1: "$10", 2: "$100", 3: "$1,000", 4: "$10,000"}
    numbers = {1: "10", 3: "1,000", 5: "100,000", 7: "10 million", 9: "1 billion"}
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 430" role="img" aria-labelledby="title text"\n'
        f'     font-family="{_FONTS}">\n'
        '  <title id="title">Objects and request costs of an archive stream in a day</title>\n'
        '  <desc id="text">Both grow with the number of partitions. At 10,000 partitions a trigger of 10 seconds costs'
        " more than 400 dollars a day, one of 15 minutes about 5 dollars.</desc>\n"
        f"  <style>\n{_STYLE}  </style>\n"
        '  <rect class="page" x="0.5" y="0.5" width="999" height="429" rx="8"/>\n'
        + _plot(100, "Data objects a day", objects, at, numbers)
        + _plot(590, "Cost of requests a day", costs, at, dollars)
        + "</svg>\n"
    )


def _plot(left: int, title: str, lines: dict[str, list[float]], at: list[int], ticks: dict[int, str]) -> str:
    low, high = min(ticks), max(ticks)

    def x(value: float) -> float:
        return round(left + log10(value) / 5 * _WIDTH, 1)

    def y(value: float) -> float:
        return round(_BOTTOM - (log10(value) - low) / (high - low) * _HEIGHT, 1)

    out = [f'<text class="b" x="{left + _WIDTH / 2:g}" y="36">{title}</text>']
    for power, name in ticks.items():
        out += [
            f'<path class="grid" d="M{left},{y(10**power)} H{left + _WIDTH}"/>',
            f'<text class="s r" x="{left - 8}" y="{y(10**power) + 4:g}">{name}</text>',
        ]
    for power, name in enumerate(("1", "10", "100", "1,000", "10,000", "100,000")):
        out.append(f'<text class="s" x="{x(10**power)}" y="{_BOTTOM + 20}">{name}</text>')
    out.append(f'<text class="s" x="{left + _WIDTH / 2:g}" y="{_BOTTOM + 42}">partitions</text>')
    for number, (name, values) in enumerate(lines.items()):
        points = [(x(p), y(v)) for p, v in zip(at, values, strict=True) if 10**low <= v <= 10**high]
        out.append(f'<path class="line c{number}" d="M' + " L".join(f"{a},{b}" for a, b in points) + '"/>')
        end_x, end_y = points[-1]
        out.append(f'<text class="s l t{number}" x="{end_x + 6:g}" y="{end_y + 4:g}">{name}</text>')
    return "".join(f"  {line}\n" for line in out)
