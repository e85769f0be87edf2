"""Faults that a stream notices and stops at, or that need small known batches: each on a stream of its own.

A log is truncated and grows again; a topic is deleted and recreated, with or without records that nobody archived; the
archive's checkpoint is lost, and a new writer creates objects again that maintenance has replaced or deletes. After the
documented way out, every other record must be there exactly once. ``SIDE_FAULTS`` has those of ``side_run_faults`` too.
"""

import random
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event

from tests.faults import FaultProxy, Rule
from tests.soak.days_oracle import PARTITIONS, ends_of
from tests.soak.days_world import DaysWorld
from tests.soak.side_oracle import (
    after_rewrite,
    days_at,
    rewritten,
    unnamed_records,
    wrong_ending,
    wrong_gaps,
)
from tests.soak.side_run_faults import (
    INCOMPLETE,
    RECORDS,
    days_key_changed,
    seen_end_lost,
    transaction_left_open,
)
from tests.soak.side_stream import SideStream, all_days

REWRITTEN = "PositionError: Kafka no longer holds the records that were archived"
RECREATED = "ConflictError: the topic was recreated"
BATCH = 200  # offsets; the same in every writer's life
HELD_S = 300


def log_rewritten(world: DaysWorld, run: str, chance: random.Random) -> str:
    """Logs lose their last records, and new ones take their offsets, while the archive stream runs or not."""
    side = SideStream(world, run)
    before = side.feed(RECORDS)
    archived = ends_of(before)
    runs = chance.random() < 0.5
    if runs:
        app = side.archive(forever=True)
        app.until(lambda: side.archived() == archived)
    else:
        side.archive_all()
        before |= side.feed(chance.choice((0, 60)))  # lost without a trace: nobody archived them
    partitions = range(chance.randint(1, PARTITIONS))
    ends = side.truncate({partition: chance.randrange(archived[partition]) for partition in partitions})
    after = side.feed(2 * RECORDS, after=True)
    lost = rewritten(archived, ends)
    stopped = side.refused(app if runs else side.archive(), explained="ServiceError: ")
    side.report(wrong_ending(stopped, REWRITTEN, side.topic, lost))
    days = all_days(before, after)
    stopped = side.attempt("one", days, fails=True)
    side.report(wrong_ending(stopped, REWRITTEN, side.topic, lost))
    side.report(unnamed_records(stopped, side.topic, lost))

    side.define(on_rewrite="continue")
    accepted = {line["partition"]: (line["start"], line["end"]) for line in side.archive_all()}
    if accepted != lost:
        side.report([f"the stream accepts {accepted}, expected {lost}"])
    side.attempt("one", days)
    side.define()
    side.archive_all()
    side.attempt("two", days[1:2], what="force")
    # By values Kafka cannot say which day its later records are of.
    side.judge(
        after_rewrite(before, after, archived, lost), disproven=days_at(before, lost), unknown=days_at(after, lost)
    )
    return f"lost {lost}, the stream {'running' if runs else 'stopped'}"


def topic_recreated(*, tail: bool) -> Callable[[DaysWorld, str, random.Random], str]:
    def strike(world: DaysWorld, run: str, chance: random.Random) -> str:
        """The topic is deleted and created again. With a ``tail``, a plan has seen records that nobody archived."""
        side = SideStream(world, run)
        archived = before = side.feed(RECORDS)
        runs = not tail and chance.random() < 0.5
        if runs:
            app = side.archive(forever=True)
            app.until(lambda: side.archived() == ends_of(archived))
        else:
            side.archive_all()
        lost = {}
        if tail:
            before = before | side.feed(chance.randrange(2, 200))
            side.attempt("seen", all_days(before)[:1], what="plan")
            lost = {log: (end, ends_of(before)[log]) for log, end in ends_of(archived).items()}
        ids = side.recreate()
        after = side.feed(RECORDS, after=True)
        stopped = side.refused(app if runs else side.archive(), explained="ServiceError: ")
        side.report(wrong_ending(stopped, RECREATED, side.topic, {}))
        side.report(f"topic id {name} is not named in {stopped!r}" for name in ids if name not in stopped)
        days = all_days(before, after)
        if tail:
            stopped = side.attempt("one", days, fails=True)
            side.report(wrong_ending(stopped, INCOMPLETE, side.topic, lost))
            side.define(accept_loss=True)
        side.attempt("one", days)
        side.define()
        side.lose_checkpoint()
        side.archive_all()
        side.attempt("two", days[1:2], what="force")
        side.judge(archived, *after.items())
        for seal in side.seals():
            side.report(wrong_gaps(seal, lost))
        return f"lost {lost}, the stream {'running' if runs else 'stopped'}"

    return strike


def checkpoint_lost(world: DaysWorld, run: str, chance: random.Random) -> str:
    """A new writer archives everything again, and maintenance comes between its objects and their manifest.

    Either maintenance has deleted the first writer's objects before, or it has replaced them only.
    """
    side = SideStream(world, run, max_offsets_per_trigger=BATCH)
    records = side.feed(RECORDS)
    side.archive_all()
    side.attempt("replace", (), what="maintain")
    deletes = chance.random() < 0.5
    if deletes:
        side.attempt("delete", (), what="maintain and delete")
    before = set(side.bucket.keys("data"))
    listed = {file["key"] for one in side.manifests() for file in one["files"]}
    if (listed > before) != deletes:
        side.report([f"{len(listed)} objects listed, {len(before)} there, before the checkpoint is lost"])
    side.lose_checkpoint()
    held, release = Event(), Event()

    def hold(_target: str) -> None:
        held.set()
        assert release.wait(HELD_S)

    number = chance.randint(1, RECORDS // BATCH)
    began = datetime.now(UTC)
    with FaultProxy(str(world.stack.settings.s3_endpoint)) as proxy:
        proxy.add(Rule(method="PUT", pattern=f"/manifests/{side.name}/", nth=number, action=hold))
        with side.archive(endpoint=proxy.url) as app:
            app.until(held.is_set)
            app.signal_all(signal.SIGSTOP)
            recreated = (listed - before) & set(side.bucket.keys("data"))
            # A deletion is as near as its shortest age allows: objects of this writer's life are younger.
            what = f"maintain and delete before {began.isoformat()}" if deletes else "maintain"
            side.attempt("beside", (), what=what)
            release.set()
            app.signal_all(signal.SIGCONT)
            assert app.wait() == 0, app.output[-3000:]
    if deletes and not recreated:
        side.report(["no deleted object was created again"])
    records |= side.feed(RECORDS)
    side.archive_all()
    side.attempt("replace-more", (), what="maintain")
    side.attempt("delete-more", (), what="maintain and delete")
    side.attempt("one", all_days(records))
    side.judge(records)
    return f"manifest {number} held, {len(recreated)} of {len(listed - before)} deleted objects created again"


SIDE_FAULTS: dict[str, Callable[[DaysWorld, str, random.Random], str]] = {
    "log rewritten": log_rewritten,
    "topic recreated": topic_recreated(tail=False),
    "topic recreated, with a tail": topic_recreated(tail=True),
    "archive's checkpoint lost": checkpoint_lost,
    "key of days changed": days_key_changed,
    "transaction left open": transaction_left_open,
    "seen end lost": seen_end_lost,
}


def strike_beside(kind: str, world: DaysWorld, run: str, share: float) -> str:
    """Do a fault to a stream of its own. What fails is a problem of the soak."""
    try:
        return SIDE_FAULTS[kind](world, run, random.Random(share))  # noqa: S311  # not for secrets
    except AssertionError as error:
        world.problems.append(f"{kind}, {run}: {error}")
        return "it failed"
