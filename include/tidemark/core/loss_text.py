"""Losses and times in words."""

from datetime import tzinfo

from tidemark.core.days import moment_text
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import Gap, Neighbours


def loss_text(log: TopicPartition, gap: Gap, zone: tzinfo) -> str:
    """One sentence: which offsets were lost, how many, and of which time they were."""
    return f"{log} {gap.range} lost to retention: {len(gap.range):,} offsets, {time_text(gap.neighbours, zone)}"


def time_text(found: Neighbours | None, zone: tzinfo) -> str:
    """Of which time lost records were, as far as their neighbours tell, in the zone's clocks."""
    before, behind = (found.before_us, found.behind_us) if found is not None else (None, None)
    if before is None and behind is None:
        return "of unknown time: no record is known on either side"
    if behind is None:
        return f"behind a record of {moment_text(before or 0, zone)}; no record is known behind them"
    if before is None:
        return f"in front of a record of {moment_text(behind, zone)}; no record is known in front of them"
    return f"between records of {moment_text(before, zone)} and {moment_text(behind, zone)}"
