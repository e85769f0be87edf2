"""The soak of one mode: do faults, let it recover, deliver the rest, count."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.soak.audit import disagreements
from tests.soak.faults import Fault, strike
from tests.soak.oracle import Verdict, judge
from tests.soak.world import world
from tidemark.stack.local import LocalStack

MASTER = "local[2,3]"  # each task is tried three times before the stream ends


@dataclass(frozen=True, kw_only=True)
class Struck:
    """One fault that was done; ``records`` is the number acknowledged by then."""

    number: int
    fault: Fault
    seen: str
    seconds: float
    records: int


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """The result. ``endings`` counts how applications ended."""

    mode: str
    struck: tuple[Struck, ...]
    starts: int
    endings: dict[str, int]
    verdict: Verdict
    audit: list[str]  # where the product's audit disagrees

    @property
    def problems(self) -> list[str]:
        """The errors; empty if all is well."""
        unexplained = [f"{count} × {text}" for text, count in self.endings.items() if text.startswith("unexplained")]
        return self.verdict.problems(once=self.mode == "exactly_once") + unexplained + self.audit


def soak(
    stack: LocalStack,
    mode: str,
    folder: Path,
    faults: Sequence[Fault],
    chance: random.Random,
    tell: Callable[[Struck], None] = lambda _: None,
    *,
    spark: SparkSession | None = None,
) -> Soaked:
    """Do all faults to a stream in that mode, one after the other, and judge its records.

    The product's delivery audit must come to the same counts. ``spark``: a session in which to deliver what is left
    and to audit; without one, applications of their own do it.
    """
    struck = []
    with world(stack, mode, folder, chance) as one:
        for number, fault in enumerate(faults, 1):
            started = time.monotonic()
            seen = strike(one, fault)
            struck.append(
                Struck(
                    number=number,
                    fault=fault,
                    seen=seen,
                    seconds=time.monotonic() - started,
                    records=len(one.feeder.acknowledged),
                )
            )
            tell(struck[-1])
    one.finish(spark)
    one.close()
    verdict = judge(
        one.bootstrap,
        one.stream.speed.topic,
        one.stream.speed.dead_letter_topic,
        one.topic_id,
        one.feeder.acknowledged,
        ordered=mode == "exactly_once",
    )
    return Soaked(
        mode=mode,
        struck=tuple(struck),
        starts=one.starts,
        endings=dict(one.endings),
        verdict=verdict,
        audit=disagreements(stack, one.stream, verdict, spark),
    )
