"""Random faults in the speed stream, in both modes, and in reconcile runs: ``make soak``.

Prints the seed, a line per fault, a table, and one JSON line. Exits 1 if a record was lost, was duplicated in
exactly-once mode or in a day, or was visible although it must not be; if a reader saw a part of a day; or if anything
ended without a TidemarkError.
"""

import argparse
import json
import os
import random
import secrets
import signal
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.soak.days import draw_days, soak_days
from tests.soak.faults import FAULTS, draw
from tests.soak.run import MASTER, Soaked, Struck, soak
from tidemark.installation import PROJECT
from tidemark.stack.java import BRIEF_JVM
from tidemark.stack.local import LocalStack

console = Console()
DAYS = {"days": True, "days-in-values": False}  # whether the records' timestamps give their days
MODES = (*FAULTS, *DAYS)


def main() -> None:
    """Run the soak; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="repeats a run's faults (random)")
    parser.add_argument("--faults", type=int, default=50, help="per mode (50)")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one; days…: reconcile runs (all)")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM")
    )  # so that the stack and the streams stop too
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        del os.environ[name]  # another deployment's
    os.environ.update({**BRIEF_JVM, "TIDEMARK_SPARK_MASTER": MASTER})
    console.print(f"seed {options.seed}, {options.faults} faults per mode")
    found: dict[str, dict[str, int | bool]] = {}
    with LocalStack("soak", root=PROJECT, streams_dir=PROJECT / ".tidemark" / "soak" / "streams", fresh=True) as stack:
        for mode in options.mode or MODES:
            chance = random.Random(f"{options.seed} {mode}")  # noqa: S311  # not for secrets
            if mode in DAYS:
                faults_of_days = draw_days(options.faults, chance)
                name = f"soak_{mode.replace('-', '_')}"
                found[mode] = soak_days(
                    stack, Path(stack.logs) / mode, name, faults_of_days, dated_by_timestamp=DAYS[mode]
                )
                continue
            faults = draw(FAULTS[mode], options.faults, chance)
            soaked = soak(stack, mode, Path(stack.logs), faults, chance, _Tell(mode, options.faults))
            console.print(_table(soaked))
            found[mode] = _summary(soaked)
    console.print(json.dumps({"seed": options.seed, **found}), soft_wrap=True, highlight=False)
    sys.exit(not all(one["passed"] for one in found.values()))


class _Tell:
    """A line per fault."""

    def __init__(self, mode: str, faults: int) -> None:
        self._mode, self._faults = mode, faults

    def __call__(self, struck: Struck) -> None:
        console.print(
            f"{self._mode} {struck.number}/{self._faults} {struck.seconds:5.1f} s  {struck.fault.kind}, "
            f"{struck.fault.moment}: {struck.seen}; {struck.records:,} records so far",
            soft_wrap=True,
            highlight=False,
        )


def _table(soaked: Soaked) -> Table:
    verdict = soaked.verdict
    table = Table("What", title=soaked.mode)
    table.add_column("Count", justify="right")
    for kind, count in sorted(Counter(struck.fault.kind for struck in soaked.struck).items()):
        table.add_row(f"fault: {kind}", str(count))
    table.add_section()
    table.add_row("starts", str(soaked.starts))
    for ending, count in sorted(soaked.endings.items()):
        table.add_row(f"ended: {ending}", str(count))
    table.add_section()
    for name, number in _counts(soaked).items():
        table.add_row(name.replace("_", " "), f"{number:,}")
    table.add_row("records rolled back, seen by nobody", f"{verdict.rolled_back:,}")
    for problem in soaked.problems:
        table.add_row(f"[red]{problem}", "")
    return table


def _counts(soaked: Soaked) -> dict[str, int]:
    verdict = soaked.verdict
    return {
        "produced": verdict.expected,
        "delivered": verdict.delivered,
        "missing": len(verdict.missing),
        "duplicates": verdict.duplicates,
        "unexpected": len(verdict.unexpected),
        "wrong": len(verdict.wrong),
    }


def _summary(soaked: Soaked) -> dict[str, int | bool]:
    return {"faults": len(soaked.struck), **_counts(soaked), "passed": not soaked.problems}


if __name__ == "__main__":
    main()
