"""What a watch has to announce: a problem that begins, gets worse or ends, and never a repetition.

All functions here are pure. The state is one value, which the caller saves after each change. So a watch that is killed
at any moment announces a change again at worst, and never leaves one out.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tidemark.core.codec import decode, encode, require_format
from tidemark.core.errors import FormatError
from tidemark.inspect.problems import Problem

FORMAT = 1
ALL_STREAMS = ""  # stands for the stream's name in a problem of the whole deployment
# A question without an answer is announced when the next check has none either: brokers restart.
UNKNOWN_CHECKS = 2
_SENTENCES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProblem:
    """A problem of a stream as one check found it. Each of ``marks`` is a step of how bad it is, such as a day that is
    missing: a further mark means that the problem got worse."""

    stream: str
    problem: Problem
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenProblem:
    """A problem that has not ended, since ``since_us``. A stream has one of each kind.

    ``checks`` counts the checks that found it, up to ``UNKNOWN_CHECKS``. ``marks`` are all that it has had.
    """

    stream: str
    kind: str
    text: str
    hint: str
    since_us: int
    checks: int
    marks: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return (self.stream, self.kind)

    @property
    def confirmed(self) -> bool:
        """Whether it is time to announce it."""
        return self.kind != "unknown" or self.checks >= UNKNOWN_CHECKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What the readers of one notifier know of problems that have not ended for them.

    They know ``problems`` for certain. While a message is being sent, and after an attempt that was killed or failed,
    they may know ``possible`` ones too: the message may have arrived.
    """

    notifier: str
    problems: tuple[OpenProblem, ...] = ()
    possible: tuple[OpenProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCount:
    """The end of a stream's dead-letter topic, as the sum of its partitions' ends.

    ``first`` is the end before the growth that began at ``since_us`` and was last seen at ``grew_us``; both are None
    while the topic does not grow. ``topic_id`` differs after the topic was recreated.
    """

    stream: str
    topic_id: str
    first: int
    end: int
    since_us: int | None
    grew_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopening:
    """A sealed day, and the upper bound of its late records when the watch started ``run`` of Airflow for them."""

    stream: str
    day: str
    records: int
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState:
    """What one check leaves for the next one. ``checked_us`` is the time of the last check, None before the first."""

    checked_us: int | None = None
    problems: tuple[OpenProblem, ...] = ()
    announced: tuple[Announced, ...] = ()
    dead_letters: tuple[DeadLetterCount, ...] = ()
    reopenings: tuple[Reopening, ...] = ()

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **encode(self)}, sort_keys=True)

    def announced_by(self, notifier: str) -> Announced:
        """What the notifier has announced; nothing if it is new."""
        return next((item for item in self.announced if item.notifier == notifier), Announced(notifier=notifier))


def parse_state(text: str | None, *, where: str) -> WatchState:
    """The state in ``text``; the one before the first check if there is none. Raises FormatError for other text."""
    if text is None:
        return WatchState()
    try:
        raw: dict[str, Any] = json.loads(text)
        require_format("unknown format of the watch's state", raw.pop("format"), known=FORMAT, where=where)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError("the watch's state does not parse", found=repr(error), where=where) from error
    return decode(WatchState, raw, where=where)


def next_problems(
    found: Iterable[FoundProblem], unchecked: Collection[str], before: Sequence[OpenProblem], *, now_us: int
) -> tuple[OpenProblem, ...]:
    """The problems that are open after a check, in order of stream and kind.

    ``unchecked`` are the streams about which a question had no answer: none of their problems ends with this check.
    With ``ALL_STREAMS`` in it, no problem ends.
    """
    known = {item.key: item for item in before}
    now: dict[tuple[str, str], OpenProblem] = {}
    for key, items in _by_key(found).items():
        earlier = known.get(key)
        texts = list(dict.fromkeys(item.problem.text for item in items))
        more = f" And {len(texts) - _SENTENCES_MAX} more of this kind." if len(texts) > _SENTENCES_MAX else ""
        marks = {mark for item in items for mark in item.marks} | set(earlier.marks if earlier else ())
        now[key] = OpenProblem(
            stream=key[0],
            kind=key[1],
            text=". ".join(texts[:_SENTENCES_MAX]) + more,
            hint=items[0].problem.hint,
            since_us=earlier.since_us if earlier else now_us,
            checks=min((earlier.checks if earlier else 0) + 1, UNKNOWN_CHECKS),
            marks=tuple(sorted(marks)),
        )
    outage = ALL_STREAMS in unchecked
    kept = {
        key: item
        for key, item in known.items()
        if key not in now and (outage or (item.stream in unchecked and item.kind != "unknown"))
    }
    return tuple(item for _, item in sorted({**kept, **now}.items()))


def _by_key(found: Iterable[FoundProblem]) -> Mapping[tuple[str, str], list[FoundProblem]]:
    by_key: dict[tuple[str, str], list[FoundProblem]] = {}
    for item in found:
        by_key.setdefault((item.stream, item.problem.kind), []).append(item)
    return by_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A problem that began, got worse or ended since a notifier announced its state last. ``marks`` are the new ones
    of a problem that got worse."""

    change: Literal["began", "worse", "ended"]
    problem: OpenProblem
    marks: tuple[str, ...] = ()


def find_changes(problems: Sequence[OpenProblem], announced: Announced) -> tuple[Change, ...]:
    """What a notifier has to announce. What its readers may or may not know counts as unknown to them."""
    certain = {item.key: item for item in announced.problems}
    possible = {item.key: item for item in announced.possible}
    open_keys = {item.key for item in problems}
    changes = []
    for item in problems:
        earlier = certain.get(item.key)
        if earlier is None:
            if item.confirmed or item.key in possible:
                changes.append(Change(change="began", problem=item))
        elif new := tuple(mark for mark in item.marks if mark not in earlier.marks):
            changes.append(Change(change="worse", problem=item, marks=new))
    ended = {key: item for key, item in {**possible, **certain}.items() if key not in open_keys}
    changes += [Change(change="ended", problem=item) for item in ended.values()]
    return tuple(changes)


def before_message(state: WatchState, notifier: str) -> WatchState:
    """The state to save before the notifier sends its changes: the message may arrive or not."""
    known, now = state.announced_by(notifier), _announcement(state, notifier)
    keys = {item.key for item in now}
    return _with_announced(
        state,
        Announced(
            notifier=notifier,
            problems=tuple(item for item in known.problems if item.key in keys),
            possible=tuple({item.key: item for item in (*known.possible, *known.problems, *now)}.values()),
        ),
    )


def after_message(state: WatchState, notifier: str) -> WatchState:
    """The state to save after the notifier has sent its changes."""
    now = _announcement(state, notifier)
    return _with_announced(state, Announced(notifier=notifier, problems=now, possible=now))


def _announcement(state: WatchState, notifier: str) -> tuple[OpenProblem, ...]:
    """What readers know when they have the notifier's message."""
    known = state.announced_by(notifier)
    keys = {item.key for item in (*known.problems, *known.possible)}
    return tuple(item for item in state.problems if item.confirmed or item.key in keys)


def _with_announced(state: WatchState, announced: Announced) -> WatchState:
    others = tuple(item for item in state.announced if item.notifier != announced.notifier)
    return replace(state, announced=(*others, announced))


def of_notifiers(state: WatchState, notifiers: Collection[str]) -> WatchState:
    """The state without notifiers that the deployment does not have any more."""
    return replace(state, announced=tuple(item for item in state.announced if item.notifier in notifiers))
