"""Why a run has not done its work: a sentence in plain words first, and the whole error for those who want it."""

from dataclasses import dataclass
from datetime import tzinfo

from tidemark.core.loss_text import loss_text, time_text, truncation_text
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import Gap, Plan
from tidemark.inspect.last_run import LastRun
from tidemark.pages.words import plural, sentence, zone_minute

_LOSSES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCause:
    """``sentences`` are the cause in plain words, ``details`` what the run reported.

    ``loss``: records are lost, so every further run fails until a person accepts that.
    """

    sentences: tuple[str, ...]
    details: tuple[str, ...]
    loss: bool


def run_cause(run: LastRun, plan: Plan | None, zone: tzinfo) -> RunCause:
    """The cause, by the run's report and the plan that it saved."""
    losses = _losses(plan, zone, run.sentences[0]) if run.failed and run.sentences and plan is not None else ()
    if losses:
        return RunCause(sentences=losses, details=run.sentences, loss=True)
    if run.failed and run.sentences:
        first, *others = run.sentences
        return RunCause(sentences=(_problem(first), *others), details=(first,), loss=False)
    return RunCause(sentences=tuple(map(sentence, run.sentences)), details=(), loss=False)


def _losses(plan: Plan, zone: tzinfo, error: str) -> tuple[str, ...]:
    """Those that the error names: others are in seals, and stop no run."""
    lost = [(item.target.log, gap) for item in plan.logs for gap in item.gaps if gap.kind == "lost"]
    found = [(log, gap) for log, gap in lost if loss_text(log, gap, zone) in error]
    truncated = [
        text for item in plan.logs for lost in item.target.truncated if (text := truncation_text(lost)) in error
    ]
    texts = (*(_loss(log, gap, zone) for log, gap in found), *(f"{text}." for text in truncated))
    texts, more = texts[:_LOSSES_MAX], len(texts) - _LOSSES_MAX
    return (*texts, f"{plural(more, 'more range')} of offsets: the report names them.") if more > 0 else texts


def _loss(log: TopicPartition, gap: Gap, zone: tzinfo) -> str:
    most = "At most " if gap.topic_deleted else ""
    one = len(gap.range) == 1
    they_were, them, are = ("it was", "it", "is") if one else ("they were", "them", "are")
    how = f"Kafka deleted {them} before {they_were} archived"
    if gap.topic_deleted:
        how = f"{they_were} deleted with the topic"
    return (
        f"{most}{plural(len(gap.range), 'offset')} of {log.topic}-{log.partition} {are} lost: {how}."
        f" {'It is' if one else 'They are'} {time_text(gap.neighbours, zone, zone_minute)}."
    )


def _problem(error: str) -> str:
    """What happened, without what was expected and found."""
    return sentence(error.partition("\n")[0].partition(": expected ")[0].partition(": found ")[0])
