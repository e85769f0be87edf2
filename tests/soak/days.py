"""Random faults in reconcile runs.

Days pass, some of them empty, some records come days late, and runs reconcile finished days. Meanwhile an attempt is
killed in any step or between its two tables, the archive stream is killed or missing, the S3 server fails, two runs
reconcile the same days, a day is rolled back to its first version and forward again, maintenance compacts the archive,
or a producer's clock is ten minutes fast, a year ahead, at the epoch, or in nanoseconds.

Streams beside it have faults of their own (``side_faults``): a log is truncated and grows again, a topic is recreated,
the archive's checkpoint is lost, a key that decides days changes between two copies of the same offsets, a transaction
stays open after the day's end, or a log loses an end that a plan has seen.

A reader reads every snapshot of the table, and the current view is read between any two steps. A day must have
everything that was archived before its run started, and everything that it had before. The view must have everything
that is archived. In the end every day must have what Kafka acknowledged, each record published or quarantined, one seal
per version, and ``verify`` must prove it.
"""

import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tests.faults import FaultProxy, Rule
from tests.soak.attempt import HALF, STEPS
from tests.soak.days_oracle import DAY_RECORDS, WRONG_CLOCKS
from tests.soak.days_world import DaysWorld, days_world
from tests.soak.side_faults import SIDE_FAULTS, strike_beside
from tests.soak.world import signal_all
from tests.speed.live import SpeedApp
from tidemark.reconcile.lease import release
from tidemark.run import Run
from tidemark.stack.local import LocalStack
from tidemark.verify.day import verify_day

ATTEMPTS_MAX = 8
ATTEMPT_S = 900
MAINTAIN_S = 20  # about the time of maintenance beside a run
# Errors after which a run is retried, as in Airflow. Any other error is a finding.
EXPLAINED = re.compile(r"^(ServiceError|ConflictError|IncompleteError): ")
ANSWERS = ((500, "InternalError"), (503, "SlowDown"))
console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its kind, the step of the run, the records before it, and a random share in [0, 1) for the rest."""

    kind: str
    step: str
    burst: int
    share: float


def draw_days(faults: int, chance: random.Random) -> list[Fault]:
    """``faults`` faults of random kinds; the counts of the kinds differ by one at most."""
    order = chance.sample(tuple(_STRIKES), len(_STRIKES))
    kinds = [order[number % len(order)] for number in range(faults)]
    chance.shuffle(kinds)
    return [
        Fault(
            kind=kind,
            step=chance.choice(STEPS),
            burst=chance.randrange(DAY_RECORDS, 2 * DAY_RECORDS),
            share=chance.random(),
        )
        for kind in kinds
    ]


def soak_days(
    stack: LocalStack, folder: Path, name: str, faults: Sequence[Fault], *, dated_by_timestamp: bool
) -> dict[str, int | bool]:
    """Do all faults, reconcile the rest, and judge. Return the counts, and whether it ``passed``."""
    with days_world(stack, folder, name, dated_by_timestamp=dated_by_timestamp) as world, world.watched():
        for number, fault in enumerate(faults, 1):
            started, known = time.monotonic(), len(world.problems)
            world.archive_up()
            days = world.burst(fault.burst)
            seen = _STRIKES[fault.kind](world, fault, f"run-{number:03}", days)
            world.judge()
            console.print(
                f"days {number}/{len(faults)} {time.monotonic() - started:5.1f} s  {fault.kind}, {fault.step}: {seen};"
                f" {len(world.feeder.acknowledged):,} records, {world.snapshots} snapshots and {world.views} views",
                soft_wrap=True,
                highlight=False,
            )
            for problem in world.problems[known:]:
                console.print(Text(problem, style="red"), soft_wrap=True)
        world.archive_up()
        days = world.burst(DAY_RECORDS)
    _await_archive(world)
    with world.watched():
        _reconcile(world, "final", [*days, *world.find_strays()])
    world.judge()
    counts = _judge_days(world)
    table = Table("What", title=name)
    table.add_column("Count", justify="right")
    for ending, count in sorted(world.endings.items()):
        table.add_row(f"an attempt ended: {ending}", str(count))
    for what, count in counts.items():
        table.add_row(what, f"{count:,}")
    for problem in world.problems:
        table.add_row(f"[red]{problem}", "")
    console.print(table)
    return {
        "faults": len(faults),
        **counts,
        "snapshots": world.snapshots,
        "views": world.views,
        "passed": not world.problems,
    }


def _reconcile(
    world: DaysWorld, run: str, days: Sequence[date], *, what: str = "reconcile", endpoint: str | None = None
) -> int:
    """Try the run until it succeeds. Return the number of attempts."""
    for number in range(1, ATTEMPTS_MAX + 1):
        with world.attempt(run, days, what=what, endpoint=endpoint) as app:
            if _ended(world, app):
                return number
    raise AssertionError(f"run {run} does not come to an end: {dict(world.endings)}\n{app.output[-6000:]}")


def _ended(world: DaysWorld, app: SpeedApp) -> bool:
    """Wait for an attempt and count how it ended. Return whether it succeeded."""
    code = app.process.wait(ATTEMPT_S)
    if code == 0:
        world.endings["exit 0"] += 1
        return True
    last = next((line for line in reversed(app.output.splitlines()) if EXPLAINED.match(line)), None)
    if last is None:
        world.endings["unexplained"] += 1
        world.problems.append(f"an attempt ended with {code} and no explanation, see {app.log.name}")
    else:
        world.endings[re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "N", last)[:120]] += 1
    return False


def _killed(world: DaysWorld, app: SpeedApp, step: str, share: float, *, within_s: float = 6) -> str:
    """Kill the attempt at a random time in the step."""
    deadline = time.monotonic() + ATTEMPT_S
    while f"step {step}\n" not in app.output:
        if app.process.poll() is not None:
            _ended(world, app)
            return "it ended before"
        assert time.monotonic() < deadline, app.output[-6000:]
        time.sleep(0.02)  # between two checks: the kill must be near the step's start
    time.sleep(share**2 * within_s)  # a random time in the step, more often an early one
    signal_all(app, signal.SIGKILL)
    app.process.wait(60)
    world.endings["killed"] += 1
    steps = re.findall(r"^step (\w+)$", app.output, re.MULTILINE)
    return f"in step {steps[-1]}"


def _kill_step(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Kill the run's process, JVM and workers at once; then retry the run."""
    with world.attempt(run, days) as app:
        seen = _killed(world, app, fault.step, fault.share)
    return f"{seen}; {_reconcile(world, run, days)} more attempts"


def _half_published(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """A run dies between the commits of its two tables, and is never repeated. A run of later days ends it."""
    with world.attempt(run, days, what=HALF) as app:
        code = app.process.wait(ATTEMPT_S)
    if code != -signal.SIGKILL:
        return f"it ended before; {_reconcile(world, run, days)} more attempts"
    world.endings["killed"] += 1
    release(Run.open(world.name, run, world.stack.settings))  # as after half an hour
    further = world.burst(fault.burst)
    attempts = _reconcile(world, f"{run}-next", further)
    left = [str(day) for day in days if not world.seals(day)]
    if left:
        world.problems.append(f"no run has sealed {', '.join(left)}, of which run {run} had published the quarantine")
    return f"{len(days)} days; {attempts} attempts of a run of other days"


def _kill_archive(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Kill the archive stream during the run, and restart it before the end."""
    with world.attempt(run, days) as app:
        time.sleep(fault.share * 10)  # the fault comes at a random time in the run
        world.archive_down()
        world.archive_up()
        first = _ended(world, app)
    return "1 attempt" if first else f"{1 + _reconcile(world, run, days)} attempts"


def _archive_away(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Reconcile the days without the archive stream: missing records are refilled."""
    world.archive_down()
    further = world.burst(fault.burst)
    return f"{_reconcile(world, run, [*days, *further])} attempts"


def _clock_wrong(clock: int) -> Callable[[DaysWorld, Fault, str, Sequence[date]], str]:
    def strike(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
        """A producer with a wrong clock sends between the others. The archive stream is missing."""
        world.archive_down()
        further = world.burst(fault.burst, clock)
        return f"{_reconcile(world, run, [*days, *further])} attempts"

    return strike


def _beside(kind: str) -> Callable[[DaysWorld, Fault, str, Sequence[date]], str]:
    def strike(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
        """A fault on a stream of its own; then the run, without the archive stream."""
        world.archive_down()
        seen = strike_beside(kind, world, run, fault.share)
        return f"{seen}; {_reconcile(world, run, days)} attempts"

    return strike


def _s3_fails(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Some of the run's requests get an error, are cut off, or are done without an answer."""
    chance = random.Random(fault.share)  # noqa: S311  # not for secrets
    with FaultProxy(str(world.stack.settings.s3_endpoint)) as proxy:
        for _ in range(12):
            how = chance.choice(("answer", "reset", "truncate"))
            proxy.add(
                Rule(
                    method=chance.choice(("GET", "PUT", "POST", "DELETE")),
                    pattern="",
                    nth=chance.randrange(1, 120),
                    times=chance.choice((1, 1, 2, 8)),
                    when=chance.choice(("before", "after")),
                    answer=chance.choice(ANSWERS) if how == "answer" else None,
                    reset=how == "reset",
                    truncate=how == "truncate",
                )
            )
        return f"{_reconcile(world, run, days, endpoint=proxy.url)} attempts"


def _killed_beside(
    world: DaysWorld,
    share: float,
    killed: tuple[str, Sequence[date]],
    other: tuple[str, Sequence[date]],
    *,
    step: str,
    what: str = "reconcile",
    within_s: float = 6,
) -> str:
    """Two at once, each a run and its days: the first one is to do ``what`` and is killed in the step, then both are
    tried again where need be, at once: one of them may wait for the other."""
    with ExitStack() as apps:
        first = apps.enter_context(world.attempt(*killed, what=what))
        second = apps.enter_context(world.attempt(*other))
        seen = _killed(world, first, step, share, within_s=within_s)
        with ThreadPoolExecutor(1) as pool:
            repeated = pool.submit(_reconcile, world, *killed, what=what)
            more = 0 if _ended(world, second) else _reconcile(world, *other)
            more += repeated.result()
    return f"{seen}; {more} more attempts"


def _two_runs(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Two runs at once, for neighbours where there are two days, one of them killed in the fault's step."""
    return _killed_beside(world, fault.share, (f"{run}a", days[:1]), (f"{run}b", days[1:] or days), step=fault.step)


def _rolled_back(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Roll a day back to its first version, in an attempt that is killed and others, and forward again.

    Every other time it is one that began empty, where there is one.
    """
    _reconcile(world, run, days)
    candidates = [seals for seals in map(world.seals, world.over()) if len(seals) > 1]
    if not candidates:
        return "no day has a second version yet"
    if fault.share * 10 % 1 < 0.5:
        candidates = [seals for seals in candidates if not seals[0].rows_published] or candidates
    first = candidates[int(fault.share * len(candidates))][0]
    with world.attempt(f"{run}-back", [first.day], what="roll back") as app:
        seen = _killed(world, app, "rollback", fault.share)
    back = _reconcile(world, f"{run}-back", [first.day], what="roll back")
    forth = _reconcile(world, f"{run}-forth", [first.day], what="force")
    return f"{seen}; {first.day} back in {back} more attempts, forth in {forth}"


def _maintained(world: DaysWorld, fault: Fault, run: str, days: Sequence[date]) -> str:
    """Maintenance that is killed beside a run, and repeated; then another one deletes everything replaced so far."""
    what, killed = "maintain", (f"{run}-maintain", ())
    seen = _killed_beside(world, fault.share, killed, (run, days), step=what, what=what, within_s=MAINTAIN_S)
    world.archive_down()
    _reconcile(world, f"{run}-delete", (), what="maintain and delete")
    compacted, deleted = world.compacted()
    if not deleted:
        world.problems.append(f"maintenance deleted nothing of {compacted} compacted ranges")
    return f"{seen}; {compacted} ranges compacted so far, {deleted} of their objects deleted"


_STRIKES: dict[str, Callable[[DaysWorld, Fault, str, Sequence[date]], str]] = {
    "run killed": _kill_step,
    "half published": _half_published,
    "archive stream killed": _kill_archive,
    "archive stream away": _archive_away,
    "S3 fails": _s3_fails,
    "two runs, one killed": _two_runs,
    "rolled back": _rolled_back,
    "maintained": _maintained,
    **{f"a clock {WRONG_CLOCKS[clock]}": _clock_wrong(clock) for clock in range(1, len(WRONG_CLOCKS))},
    **{kind: _beside(kind) for kind in SIDE_FAULTS},
}


def _await_archive(world: DaysWorld) -> None:
    """Stop feeding, and archive every record."""
    for _ in range(ATTEMPTS_MAX):
        with world.archive_to_the_end() as app:
            if app.wait() == 0:
                return
    raise AssertionError(f"the archive stream does not come to its end: {app.output[-6000:]}")


def _judge_days(world: DaysWorld) -> dict[str, int]:
    """Compare every finished day with the acknowledged records; check its seals and its proof."""
    over = world.over()
    rows = world.judge_tables()
    versions = empty = holes = 0
    for day in track(over, "verifying", console=console):
        seals = world.seals(day)
        versions += len(seals)
        empty += sum(not seal.rows_published for seal in seals)
        if sorted(seal.version for seal in seals) != list(range(1, len(seals) + 1)) or not seals:
            world.problems.append(f"{day} has the versions {[seal.version for seal in seals]}")
        if len({seal.run for seal in seals}) != len(seals):
            world.problems.append(f"a run sealed {day} twice: {[seal.run for seal in seals]}")
        holes = max(holes, sum(hole.missing for log in seals[-1].logs for hole in log.holes))  # each seal lists all
        found = verify_day(world.stack.settings, world.name, day)
        if found.verdict != "proven":
            world.problems.append(f"{day} is {found.verdict}: {found.checks}")
    if not holes and not world.dated_by_timestamp:
        world.problems.append("no day has the holes of a transaction that was aborted")
    compacted, deleted = world.compacted()
    return {
        "records": len(world.feeder.acknowledged),
        "days": len(over),
        "versions": versions,
        "empty_versions": empty,
        "holes": holes,
        "compacted": compacted,
        "deleted": deleted,
        **rows,
        "attempts": world.attempts,
    }
