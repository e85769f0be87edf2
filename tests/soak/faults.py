"""The faults: drawn from a seed, and done to a running stream. Their exact time also depends on the machine."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.soak.feed import HOSTILE
from tests.soak.world import World, members, signal_all

DEADLINE_S = 300
MOMENTS = ("starting", "writing", "after a batch")
BOTH = (
    "kill",
    "kill the JVM",
    "terminate",
    "worker",
    "pause",
    "zombie",
    "checkpoint restored",
    "broker stopped",
    "broker killed",
    "hostile records",
)
FAULTS = {"at_least_once": BOTH, "exactly_once": (*BOTH, "open transaction")}

# Otherwise there may be no process to hit.
_NEED_A_BATCH = ("worker", "zombie", "checkpoint restored", "open transaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: its kind, its time, the records in flight, and a random share in [0, 1) for the rest."""

    kind: str
    moment: str
    burst: int
    share: float


def draw(kinds: Sequence[str], faults: int, chance: random.Random) -> list[Fault]:
    """``number`` faults in random order; the counts of the kinds differ by one at most."""
    order = chance.sample(kinds, len(kinds))
    wanted = [order[number % len(order)] for number in range(faults)]
    chance.shuffle(wanted)
    return [
        Fault(
            kind=kind,
            moment=chance.choice(MOMENTS[1:] if kind in _NEED_A_BATCH else MOMENTS),
            burst=chance.randrange(2_000, 30_000),
            share=chance.random(),
        )
        for kind in wanted
    ]


def strike(world: World, fault: Fault) -> str:
    """Wait for the fault's time and do it. Return a short description."""
    _await_moment(world, fault)
    return _STRIKES[fault.kind](world, fault)


def _await_moment(world: World, fault: Fault) -> None:
    app = world.up()
    if fault.moment == "starting" and not app.events("batch"):
        world.feeder.burst(fault.burst)
        time.sleep(fault.share * 15)
        return
    batches = len(app.events("batch"))
    # Let the stream get near the end of the topic first, so that the burst is one large batch.
    world.until(lambda: len(world.up().events("batch")) > (batches if world.app is app else 0), "a batch")
    before = world.written()
    world.feeder.burst(fault.burst)
    world.until(lambda: world.written() > before + 200, "records of the burst are written")
    if fault.moment == "after a batch":
        app, batches = world.up(), len(world.up().events("batch"))
        world.until(lambda: len(world.up().events("batch")) > (batches if world.app is app else 0), "a batch")
    time.sleep(fault.share * 0.5)


def _kill(world: World, _fault: Fault) -> str:
    """Kill driver, JVM and workers at once."""
    world.killed = True
    app = world.up()  # asked twice, it would start another one
    signal_all(app, signal.SIGKILL)
    app.process.wait(60)
    return "all of it is dead"


def _kill_jvm(world: World, _fault: Fault) -> str:
    """Kill the JVM only: workers and the driver's Python remain."""
    world.killed = True
    app = world.up()
    jvms = [process for process in members(app) if process.name() == "java"]
    for jvm in jvms:
        jvm.kill()
    if not jvms:
        return "there was none yet"
    return f"the driver ended with {app.wait()}"


def _terminate(world: World, fault: Fault) -> str:
    """Send SIGTERM to the driver, like a container runtime, or to all processes, like a terminal."""
    world.killed = True
    app = world.up()
    if fault.share < 0.5:
        app.process.terminate()
    else:
        signal_all(app, signal.SIGTERM)
    return f"it ended with {app.wait()}"


def _worker(world: World, fault: Fault) -> str:
    """Kill one Python worker during its task, or the daemon that forks them: Spark retries the task."""
    workers = [process for process in members(world.up()) if _says(process, "pyspark.worker")]
    if not workers:
        return "there was none"
    with suppress(psutil.NoSuchProcess):
        workers[int(fault.share * 997) % len(workers)].kill()
    return f"one of {len(workers)}"


def _pause(world: World, fault: Fault) -> str:
    """Pause the machine's processes for a while."""
    app = world.up()
    signal_all(app, signal.SIGSTOP)
    time.sleep(fault.share * 10)
    signal_all(app, signal.SIGCONT)
    return f"for {fault.share * 10:.1f} s"


def _zombie(world: World, fault: Fault) -> str:
    """Pause the application, start a successor that delivers, and resume the first."""
    zombie = world.hand_over()
    signal_all(zombie, signal.SIGSTOP)
    try:
        world.feeder.burst(fault.burst)
        world.until(lambda: bool(world.up().events("batch")), "the successor delivers")
        time.sleep(fault.share * 2)
    finally:
        signal_all(zombie, signal.SIGCONT)
    successor = world.up()
    deadline = time.monotonic() + DEADLINE_S
    while zombie.process.poll() is None and successor.process.poll() is None and time.monotonic() < deadline:
        world.feeder.burst(500)
        time.sleep(0.2)
    if zombie.process.poll() is not None:
        world.note(zombie)
        return "it ended"
    if successor.process.poll() is not None:
        world.note(successor)
        world.app = zombie
        return "it won"
    world.endings["unexplained: two writers beside each other"] += 1
    signal_all(zombie, signal.SIGKILL)
    zombie.process.wait(60)
    return "both went on"


def _restored(world: World, fault: Fault) -> str:
    """Copy the checkpoint, deliver more, kill the application, and restore the copy."""
    app = world.up()
    signal_all(app, signal.SIGSTOP)
    copy = world.checkpoint()
    signal_all(app, signal.SIGCONT)
    world.feeder.burst(fault.burst)
    batches = len(app.events("batch"))
    world.until(lambda: len(world.up().events("batch")) > (batches if world.app is app else 0), "more is delivered")
    _kill(world, fault)
    world.restore(copy)
    world.until(lambda: bool(world.up().events("batch")), "it delivers again")
    return f"{len(copy)} objects"


def _broker(stop: Callable[[World], None]) -> Callable[[World, Fault], str]:
    def strike_it(world: World, fault: Fault) -> str:
        stop(world)
        time.sleep(fault.share * 4)
        world.kafka.launch()
        return f"away for {fault.share * 4:.1f} s"

    return strike_it


def _open_transaction(world: World, fault: Fault) -> str:
    """Another producer with the same transactional id dies in a transaction, while the stream is paused."""
    partition = int(fault.share * 997) % 4
    deployment = world.stack.settings.deployment
    name = f"tidemark-{deployment}-speed-{world.stream.name}-{world.topic_id}-{partition}"
    app = world.up()
    signal_all(app, signal.SIGSTOP)  # otherwise it would fence the other one first
    try:
        done = subprocess.run(
            [sys.executable, "-c", _OTHER_PRODUCER, world.bootstrap, name, world.stream.speed.topic],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
            env={key: value for key, value in os.environ.items() if not key.startswith("TIDEMARK_")},
        )
    finally:
        signal_all(app, signal.SIGCONT)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return f"partition {partition}"


def _hostile(world: World, _fault: Fault) -> str:
    """Records at the limits of each field, alone and in pairs, come between the others."""
    before = world.feeder.hostile
    world.feeder.burst_of_hostile()
    world.until(lambda: world.feeder.hostile >= before + len(HOSTILE), "they are acknowledged")
    batches, app = len(world.up().events("batch")), world.up()
    world.until(lambda: len(world.up().events("batch")) > (batches if world.app is app else 0), "a batch")
    return f"{len(HOSTILE)} of them"


_OTHER_PRODUCER = """\
import os, signal, sys
from confluent_kafka import Producer
bootstrap, name, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000})
producer.init_transactions(60)
producer.begin_transaction()
for number in range(100):
    producer.produce(topic, b"nobody may see this")
assert producer.flush(60) == 0
os.kill(os.getpid(), signal.SIGKILL)
"""


def _says(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


_STRIKES: dict[str, Callable[[World, Fault], str]] = {
    "kill": _kill,
    "kill the JVM": _kill_jvm,
    "terminate": _terminate,
    "worker": _worker,
    "pause": _pause,
    "zombie": _zombie,
    "checkpoint restored": _restored,
    "broker stopped": _broker(lambda world: world.kafka.stop()),
    "broker killed": _broker(lambda world: world.kafka.kill()),
    "open transaction": _open_transaction,
    "hostile records": _hostile,
}
