"""Kill -9 of a reconcile run's processes, in each of its steps, at moments that the S3 server sees."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Literal

import psutil

from tests.faults import FaultProxy, Rule
from tidemark.definitions.stream import Stream
from tidemark.stack.processes import Managed

# The process in which Airflow runs a task's own code; the one that watches it has another title.
_TASK = re.compile(r"airflow worker -- [0-9a-f]{8}-[0-9a-f-]{27}$")


@dataclass(frozen=True, kw_only=True)
class Kill:
    """What is struck in a step: the moment is a write to S3, right before it or right after it was done.

    ``whole`` takes all processes of the attempt, and a write that it is before is never made. Else the task's own
    process dies, and its Spark application, where it has one, lives on and does the write. With ``scheduler``, the
    scheduler dies with every process that it started, and starts again.
    """

    step: str
    writes: str  # pattern of the key
    when: Literal["before", "after"] = "before"
    whole: bool = True
    scheduler: bool = False


def each_step_once(stream: Stream, day: date) -> tuple[Kill, ...]:
    """A kill per step, in the order in which a run of the day gets there. The rebuild loses the scheduler too."""
    run, table = f"/runs/{stream.name}/[^/]+", f"/{stream.table}"
    return (
        Kill(step="wait_for_lease", writes=f"/leases/{stream.name}/", when="after"),
        Kill(step="wait", writes=f"{run}/wait.json"),
        Kill(step="plan", writes=f"{run}/plan.json"),
        Kill(step="refill", writes=f"/manifests/{stream.name}/"),
        Kill(step="finalize_plan", writes=f"{run}/finalize_plan.json"),
        Kill(step="rebuild", writes=f"{table}/data/", when="after", scheduler=True),
        Kill(step="rebuild", writes=f"{run}/audit.json"),  # its application checks the rows, too
        Kill(step="approve", writes=f"{run}/approve.json", when="after"),
        Kill(step="publish", writes=f"{table}/metadata/.*metadata.json"),
        Kill(step="seal", writes=f"/seals/{stream.name}/{day}/"),
        Kill(step="report", writes=f"{run}/report.json", when="after"),
    )


def each_step_twice(stream: Stream, last: date) -> tuple[Kill, ...]:
    """Two kills per step, in the order in which a run of days up to ``last`` gets there.

    The first attempt dies in its work, the second one with its work done, as its result is written or is there.
    """
    run, table = f"/runs/{stream.name}/[^/]+", f"/{stream.table}"
    return (
        Kill(step="wait_for_lease", writes=f"/leases/{stream.name}/"),
        Kill(step="wait_for_lease", writes=f"/leases/{stream.name}/", when="after"),
        Kill(step="wait", writes=f"{run}/wait.json"),
        Kill(step="wait", writes=f"{run}/wait.json", when="after"),
        Kill(step="plan", writes=f"{run}/plan.json"),
        Kill(step="plan", writes=f"{run}/plan.json", when="after"),
        Kill(step="refill", writes=f"/manifests/{stream.name}/"),  # its files are there
        Kill(step="refill", writes=f"{run}/refill.json", whole=False),
        Kill(step="finalize_plan", writes=f"{run}/finalize_plan.json"),
        Kill(step="finalize_plan", writes=f"{run}/finalize_plan.json", when="after"),
        Kill(step="rebuild", writes=f"{table}/data/", when="after"),  # the branch has no commit yet
        Kill(step="rebuild", writes=f"{run}/rebuild.json", whole=False),
        Kill(step="rebuild", writes=f"{run}/audit.json"),
        Kill(step="rebuild", writes=f"{run}/audit.json", whole=False),
        Kill(step="publish", writes=f"{table}/metadata/.*metadata.json"),  # the quarantine is published, the table not
        Kill(step="publish", writes=f"{run}/publish.json"),
        Kill(step="seal", writes=f"/seals/{stream.name}/{last}/"),  # the days before are sealed
        Kill(step="seal", writes=f"{run}/seal.json", when="after"),
        Kill(step="report", writes=f"{run}/report.html", when="after"),
        Kill(step="report", writes=f"{run}/report.json", when="after"),
    )


class Killer:
    """Does the kills one after the other while one run of the stream's is under way; ``done`` are those that struck."""

    def __init__(self, proxy: FaultProxy, scheduler: Managed, kills: Sequence[Kill]) -> None:
        self.done: list[Kill] = []
        self._proxy, self._scheduler, self._kills = proxy, scheduler, kills
        self._lie_in_wait()

    def _lie_in_wait(self) -> None:
        if len(self.done) < len(self._kills):
            kill = self._kills[len(self.done)]
            cut = kill.whole and kill.when == "before"
            self._proxy.add(
                Rule(method="PUT", pattern=kill.writes, when=kill.when, action=lambda _: self._strike(kill), reset=cut)
            )

    def _strike(self, kill: Kill) -> None:
        if kill.scheduler:
            self._scheduler.kill()
            self._scheduler.launch()
            self.done.append(kill)
        else:
            self._strike_tasks(kill)
        self._lie_in_wait()

    def _strike_tasks(self, kill: Kill) -> None:
        for task in _tasks(self._scheduler.pid):
            victims = [*(task.children(recursive=True) if kill.whole else []), task]
            for process in victims:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.done.append(kill)


def strike_task(scheduler_pid: int, identity: str) -> bool:
    """Kill the process of one task instance, by the id that Airflow knows it by; whether there was one."""
    struck = False
    for task in _tasks(scheduler_pid):
        with suppress(psutil.NoSuchProcess):
            if "".join(task.cmdline()).strip().endswith(identity):
                task.kill()
                struck = True
    return struck


def _tasks(scheduler_pid: int) -> list[psutil.Process]:
    found = []
    for process in psutil.Process(scheduler_pid).children(recursive=True):
        with suppress(psutil.Error):
            if _TASK.match(" ".join(process.cmdline()).strip()):
                found.append(process)
    return found
