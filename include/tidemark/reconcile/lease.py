"""One reconcile run of a stream at a time: the one that holds the stream's lease, an object in S3.

A run takes the lease before it plans, each of its steps renews it, and its report step releases it. A step checks the
lease before it publishes or seals. A run that loses the lease after that check does no harm: publication compares and
swaps, and a seal is written once.
"""

import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from tidemark.core.codec import decode, encode
from tidemark.core.days import micros
from tidemark.core.errors import ConflictError, FormatError, TidemarkError
from tidemark.core.layout import Layout
from tidemark.core.manifest import canonical_json
from tidemark.run import Run
from tidemark.s3 import ObjectStore

_logger = logging.getLogger(__name__)
# A holder counts as dead if its last renewal is further than this from now. Steps renew the lease much more often. A
# renewal that is further ahead comes from a wrong clock, and would hold the lease until that time.
EXPIRES_AFTER = timedelta(minutes=30)
RENEW_EVERY_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The run that holds a lease, and where it runs: ``dag`` and ``dag_run`` of Airflow, or else a process."""

    run: str
    process: str
    taken_at_us: int
    renewed_at_us: int
    dag: str | None = None
    dag_run: str | None = None

    def __str__(self) -> str:
        where = f"run {self.dag_run} of DAG {self.dag}" if self.dag else f"run {self.run}, {self.process}"
        return f"{where}, since {_text(self.taken_at_us)}, renewed {_text(self.renewed_at_us)}"


HasEnded = Callable[[Holder], bool | None]


def take(run: Run, has_ended: HasEnded = lambda _: None) -> Holder | None:
    """Take the stream's lease for the run, or renew it. None where the run has it now, else the run that holds it.

    The lease is free where nobody holds it or where its holder has ended. ``has_ended`` says so where it can; where it
    returns None, a lease that was not renewed within ``EXPIRES_AFTER`` of now counts as free.
    """

    def change(body: bytes | None) -> bytes | None:
        now, holder = _now(), _parse(run, body)
        if holder is not None and holder.run == run.name:
            return _body(replace(holder, renewed_at_us=now))
        if holder is not None and not _is_dead(holder, has_ended, now):
            return None
        if holder is not None:
            _logger.warning("taking over the lease of stream %s from %s, which counts as dead", run.stream.name, holder)
        return _body(
            Holder(
                run=run.name,
                process=f"process {os.getpid()} on {socket.gethostname()}",
                taken_at_us=now,
                renewed_at_us=now,
                # Airflow sets both for each of its tasks, and the processes that a task starts inherit them.
                dag=os.environ.get("AIRFLOW_CTX_DAG_ID"),
                dag_run=os.environ.get("AIRFLOW_CTX_DAG_RUN_ID"),
            )
        )

    holder = _parse(run, run.store.update(run.layout.lease_key, change))
    return None if holder is not None and holder.run == run.name else holder


def read_holder(store: ObjectStore, layout: Layout, now: datetime) -> Holder | None:
    """The run that has the stream's lease at this time; None where it is free or its holder counts as dead."""
    holder = _decode(store.get(layout.lease_key), f"s3://{store.bucket}/{layout.lease_key}")
    return None if holder is None or _is_dead(holder, lambda _: None, micros(now)) else holder


def check_lease(run: Run) -> None:
    """Raise ConflictError where another run holds the stream's lease."""
    holder = _parse(run, run.store.get(run.layout.lease_key))
    if holder is not None and holder.run != run.name:
        raise _refusal(run, holder)


def release(run: Run) -> None:
    """Give the lease back where the run has it; else do nothing."""

    def change(body: bytes | None) -> bytes | None:
        holder = _parse(run, body)
        return _body(None) if holder is not None and holder.run == run.name else None

    run.store.update(run.layout.lease_key, change)


@contextmanager
def holding(run: Run, *, then_release: bool = False) -> Iterator[None]:
    """Hold the stream's lease while a step of the run works. Raises ConflictError where another run holds it.

    A step of a run that has released the lease, and is repeated later, takes it again if it is free. It takes no lease
    over: a holder that Airflow keeps waiting renews nothing and is alive. ``then_release`` is for a run of one step.
    """
    holder = take(run) if then_release else take(run, _is_alive)
    if holder is not None:
        raise _refusal(run, holder)
    try:
        with _beside(_renew, run):  # it ends first, or it might take the lease again after its release
            yield
    finally:
        if then_release:
            release(run)


@contextmanager
def renewing(run: Run) -> Iterator[None]:
    """Renew the stream's lease while the run's application works, as long as the run has it.

    Where it works for a task that Airflow has deferred, or whose worker has died, nobody else renews the lease. It
    never takes the lease: an application may outlive its run.
    """
    with _beside(_renew_only, run):
        yield


@contextmanager
def _beside(renew: Callable[[Run, Event], None], run: Run) -> Iterator[None]:
    """Run ``renew`` in a thread during the block."""
    over = Event()
    thread = Thread(target=renew, args=(run, over), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _renew_only(run: Run, over: Event) -> None:
    def change(body: bytes | None) -> bytes | None:
        holder = _parse(run, body)
        return _body(replace(holder, renewed_at_us=_now())) if holder is not None and holder.run == run.name else None

    while not over.wait(RENEW_EVERY_S):
        try:
            run.store.update(run.layout.lease_key, change)
        except TidemarkError as error:
            _logger.warning("the lease of stream %s could not be renewed: %s", run.stream.name, error)


def _renew(run: Run, over: Event) -> None:
    while not over.wait(RENEW_EVERY_S):
        try:
            holder = take(run, _is_alive)
        except TidemarkError as error:
            _logger.warning("the lease of stream %s could not be renewed: %s", run.stream.name, error)
            continue
        if holder is not None:
            _logger.error("run %s has lost the lease of its stream to %s", run.name, holder)
            return


def _refusal(run: Run, holder: Holder) -> ConflictError:
    return ConflictError(
        "another run of the stream is under way",
        expected=f"the stream's lease to be free, or held by run {run.name}",
        found=str(holder),
        where=f"s3://{run.store.bucket}/{run.layout.lease_key}",
        hint="Wait until that run has ended, then repeat; in Airflow, clear this run from its first task on. Where its"
        f" process died, its lease lapses {EXPIRES_AFTER.total_seconds() / 60:.0f} minutes after the last renewal",
    )


def _is_alive(_: Holder) -> bool:
    return False  # it has not ended


def _is_dead(holder: Holder, has_ended: HasEnded, now: int) -> bool:
    ended = has_ended(holder)
    if ended is not None:
        return ended
    return abs(timedelta(microseconds=now - holder.renewed_at_us)) > EXPIRES_AFTER


def _body(holder: Holder | None) -> bytes:
    return canonical_json({"holder": encode(holder)})


def _parse(run: Run, body: bytes | None) -> Holder | None:
    return _decode(body, f"s3://{run.store.bucket}/{run.layout.lease_key}")


def _decode(body: bytes | None, where: str) -> Holder | None:
    if body is None:
        return None
    try:
        value = json.loads(body)["holder"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("not a lease", expected='{"holder": …}', found=repr(body[:200]), where=where) from error
    return None if value is None else decode(Holder, value, where=where)


def _now() -> int:
    return micros(datetime.now(UTC))


def _text(moment_us: int) -> str:
    return datetime.fromtimestamp(moment_us // 1_000_000, UTC).isoformat()
