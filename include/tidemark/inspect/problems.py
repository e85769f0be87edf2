"""What can need attention in a stream: the kinds of problems, and one problem. Alert rules and runbooks use the kinds.

A kind never changes its meaning, and none is removed: rules outside this repository depend on them.
"""

from dataclasses import dataclass
from typing import Final

# One line for each: the identifier, and what it means.
KINDS: Final = {
    "definition_invalid": "The stream's YAML file can't be used.",
    "archive_never_started": "The archive layer has never run, and no day is sealed.",
    "archive_failed": "The archive layer ended with an error.",
    "archive_stale": "The archive layer has no heartbeat from the last minute: it stopped, hangs, or a clock is wrong.",
    "speed_failed": "The speed layer ended with an error.",
    "speed_stale": "The speed layer has no heartbeat from the last minute: it stopped, hangs, or a clock is wrong.",
    "departures_failed": "The example that counts events ended with an error.",
    "departures_stale": "The example that counts events has no heartbeat from the last minute: it stopped or hangs.",
    "retention": "Kafka will soon delete records that are not archived.",
    "overflow": "Records went to the archive's overflow folder, because the stream has too many folders.",
    "out_of_bounds": "Records have a time field that is too far from Kafka's time.",
    "unreadable_times": "Too many records have a time field that can't be read.",
    "day_overdue": "A day is not sealed, and its deadline has passed.",
    "day_unproven": "Readers see rows of a run that no seal proves.",
    "day_not_ours": "Readers see rows that Tidemark did not publish.",
    "run_failed": "The last reconcile run failed, or stopped before its end.",
    "days_held_back": "The last reconcile run held days back, because their checks failed or rows are missing.",
    "unknown": "A check has no result: Kafka, S3 or the catalog did not answer, or an object can't be read.",
}

# Further kinds that only the DAG tidemark_watch finds: they need the check before, or Airflow.
WATCH_KINDS: Final = {
    "dead_letters": "Records became dead letters during the last hour.",
    "delivery": "The last delivery audit failed, or found that the live topic differs from the table.",
    "approval_waits": "A run waits for a person to approve its days.",
    "late_data_waits": "Late records wait, and the stream's reconcile DAG is paused.",
}
# The page of each kind below docs: what to do.
PAGES: Final = {
    "definition_invalid": "runbooks/definition-invalid",
    "archive_never_started": "runbooks/archive-never-started",
    "archive_failed": "runbooks/layer-failed",
    "archive_stale": "runbooks/layer-stale",
    "speed_failed": "runbooks/layer-failed",
    "speed_stale": "runbooks/layer-stale",
    "departures_failed": "runbooks/layer-failed",
    "departures_stale": "runbooks/layer-stale",
    "retention": "runbooks/retention-runway",
    "overflow": "runbooks/overflow",
    "out_of_bounds": "runbooks/out-of-bounds",
    "unreadable_times": "runbooks/unreadable-times",
    "day_overdue": "runbooks/day-overdue",
    "day_unproven": "runbooks/day-unproven",
    "day_not_ours": "runbooks/day-not-ours",
    "run_failed": "runbooks/run-failed",
    "days_held_back": "runbooks/days-held-back",
    "unknown": "runbooks/status-unknown",
    "dead_letters": "runbooks/dead-letters",
    "delivery": "how-to/check-delivery",
    "approval_waits": "how-to/approve-a-day",
    "late_data_waits": "how-to/late-data",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that needs attention: its ``kind`` (a key of ``KINDS`` or ``WATCH_KINDS``), a sentence about it, and
    what to do."""

    kind: str
    text: str
    hint: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS and self.kind not in WATCH_KINDS:
            raise ValueError(f"no such kind of problem: {self.kind}")
