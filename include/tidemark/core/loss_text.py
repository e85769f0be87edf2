"""Losses and times in words."""

from collections.abc import Callable
from datetime import tzinfo

from tidemark.core.days import moment_text
from tidemark.core.offsets import TopicPartition, range_or_none
from tidemark.core.plan import Gap, Neighbours, Truncation


def loss_text(log: TopicPartition, gap: Gap, zone: tzinfo) -> str:
    """Which offsets were lost, how, how many, and from which time."""
    how = "with its topic, which was deleted or recreated: at most" if gap.topic_deleted else "to retention:"
    offsets = "offset" if len(gap.range) == 1 else "offsets"
    return f"{log} {gap.range} lost {how} {len(gap.range):,} {offsets}, {time_text(gap.neighbours, zone)}"


def truncation_text(lost: Truncation) -> str:
    """Which offsets a log lost from its end, at most how many, and which others Kafka may have rewritten."""
    offsets = "offset" if len(lost.range) == 1 else "offsets"
    doubtful = range_or_none(lost.archived, lost.range.start)
    others = "" if doubtful is None else f"; {lost.log} {doubtful} may have had other records before"
    return f"{lost.log} {lost.range} lost from the end of the log: at most {len(lost.range):,} {offsets}{others}"


def time_text(found: Neighbours | None, zone: tzinfo, shown: Callable[[int, tzinfo], str] = moment_text) -> str:
    """The time of lost records, as far as their neighbours show it; ``shown`` gives the text of µs in the zone."""
    before, after = (found.before_us, found.after_us) if found is not None else (None, None)
    if before is None and after is None:
        return "of unknown time: no record is known on either side"
    if after is None:
        return f"after a record of {shown(before or 0, zone)}; no record is known after them"
    if before is None:
        return f"before a record of {shown(after, zone)}; no record is known before them"
    return f"between records of {shown(before, zone)} and {shown(after, zone)}"
