"""The whole path on a secured stack: every step as people run it, by the user of its role."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.command_json import valid_result
from tests.conftest import TRANSFORM
from tests.secured_stack import Ended, Secured, secured
from tidemark.core.layout import Layout
from tidemark.kafka.acls import ROLES
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.secure import KMS_KEY
from tidemark.tables.seals import read_seal

pytestmark = [pytest.mark.services, pytest.mark.conformance(35), pytest.mark.timeout(900)]
DAY = date(2013, 1, 14)
NOON_MS = int(datetime(2013, 1, 14, 12, tzinfo=UTC).timestamp() * 1000)
GOOD = 6
DELIVERED = "/delivery.json"
MODES = {"gently": "at_least_once", "exactly": "exactly_once"}
# The columns of a row of the current view that the producer knows, from the settings of whoever runs it.
CURRENT = """\
import sys
from tidemark.current_view.frame import current
from tidemark.settings import settings
from tidemark.spark.session import spark_session
found = settings()
spark = spark_session(found, "reader")
print(sorted(row.n for row in current(spark, found, sys.argv[1]).select("n").collect()))
spark.stop()
"""


@pytest.fixture(scope="module")
def spine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A secured stack with a stream of each mode, in whose topics are good records and a malformed one."""
    root = tmp_path_factory.mktemp("secured")
    streams = root / "streams"
    streams.mkdir()
    for name, mode in MODES.items():
        wanted = {
            "name": name,
            "topic": name,
            "value_schema": "n BIGINT",
            "speed": {"topic": f"{name}.live", "dead_letter_topic": f"{name}.dead", "delivery": mode},
            "batch": {"wait_seconds": 0},
        }
        (streams / f"{name}.yaml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
        (streams / f"{name}.py").write_text(TRANSFORM, encoding="utf-8")
    with secured(root, streams) as running:
        for name in MODES:
            produce(running.stack.settings, name)
        yield running


def produce(settings: Settings, topic: str) -> None:
    assert ensure_topic(settings.kafka, topic, partitions=1, config={"retention.ms": "-1"})
    producer = Producer(settings.kafka.client({"acks": "all"}))
    for value in (*(json.dumps({"n": n}).encode() for n in range(GOOD)), b"no JSON"):
        producer.produce(topic, value, timestamp=NOON_MS, partition=0)
    assert producer.flush(60) == 0


def values(settings: Settings, topic: str) -> Counter[Any]:
    """The committed records of a topic's only partition, by their value."""
    own = {"group.id": "anybody", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer(settings.kafka.client(own))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Counter[Any] = Counter()
    while True:
        message = consumer.poll(30)
        assert message is not None, topic
        problem = message.error()
        if problem is not None:
            assert problem.code() == KafkaError._PARTITION_EOF, problem
            break
        value = message.value()
        assert value is not None
        found[value] += 1
    consumer.close()
    return found


@pytest.fixture(scope="module")
def ended(spine: Secured) -> dict[str, Ended]:
    """Every step, by user and command. A user's steps run in one process, and two users at a time."""
    day = str(DAY)

    def doctor(role: str) -> tuple[str, ...]:
        return ("doctor", "exactly", "--role", role, "--json")

    def streams(role: str) -> tuple[tuple[str, ...], ...]:
        return (*((f"{role}_stream.py", name, "--available-now") for name in MODES), doctor(role))

    for programs in (
        {role: streams(role) for role in ("archive", "speed")},
        {
            "reconcile": (("reconcile", "gently", "--from", day), doctor("reconcile")),
            "replay": (("replay", "exactly", "--json"), doctor("replay")),
        },
        {
            "reader": (
                ("verify", "gently", day),
                ("delivery", "gently", "--from", day),
                ("status", "gently", "--stale-seconds", "86400"),
                ("status", "gently", day),
                ("where", "gently", "gently", "0", "0"),
                ("-c", CURRENT, "gently"),
                doctor("reader"),
            ),
            "maintenance": (("maintain", "gently", "--clean-tables", "--compact", "--json"), doctor("maintenance")),
        },
        {"reconcile": (("rollback", "gently", day, "--to", "1"),)},
    ):
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(spine.run, user, *commands) for user, commands in programs.items()]:
                done.result()
    return {item.command: item for item in spine.ended}


def test_every_step_succeeds_as_the_user_of_its_role(spine: Secured, ended: dict[str, Ended]) -> None:
    for item in ended.values():
        assert item.code == 0, f"{item.command}: {item.code}\n{item.output[-4000:]}\n{item.messages[-4000:]}"
    settings = spine.stack.settings
    for name in MODES:
        live = values(settings, f"{name}.live")
        assert {json.loads(value)["n"]: count for value, count in live.items()} == dict.fromkeys(range(GOOD), 1)
    assert values(settings, "gently.dead") == {b"no JSON": 1}
    assert values(settings, "exactly.dead") == {b"no JSON": 2}  # replayed, and rejected again

    said = {" ".join(command.split()[:2]): item.output for command, item in ended.items()}
    counts = f"{GOOD + 1} records read, {GOOD} published, 1 quarantined"
    assert f"{DAY}, version 1: {counts}" in said["reconcile reconcile"]
    assert "version 1: proven" in said["reader verify"]
    assert valid_result("replay", said["replay replay"])["replayed"]["dead_again"] == 1
    assert valid_result("maintain", said["maintenance maintain"])["clean_tables"] is True
    assert "gently: pass" in said["reader delivery"]
    assert str([*range(GOOD)]) in said["reader -c"]
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream="gently")
    (compared,) = [
        key for item in store.list(layout.run_prefix) if "command-" in (key := item.key) and DELIVERED in key
    ]
    assert [day["verdict"] for day in json.loads(store.get(compared) or b"")["result"]["days"]] == ["pass"]
    seal = read_seal(store, layout, DAY, 1)
    assert seal is not None
    assert seal.rows_published == GOOD


def test_the_doctor_finds_nothing_wrong_for_any_role(ended: dict[str, Ended]) -> None:
    """What it skips is what nobody can try with these rights."""
    answers = {item.command: item.output for item in ended.values() if " doctor " in item.command}
    assert len(answers) == len(ROLES)
    for command, output in answers.items():
        lines = json.loads(output)["result"]["lines"]
        other = {line["name"].partition(" ")[0] for line in lines if line["state"] != "ok"}
        assert other <= {"clock", "kms:GenerateDataKey"}, (command, output)


@pytest.mark.usefixtures("ended")
def test_no_planted_secret_is_left_anywhere(spine: Secured) -> None:
    files, objects = spine.files(), spine.objects()
    secrets = (spine.stack.folder / "secrets.json").read_bytes()
    assert spine.planted.among({"secrets.json": secrets, "none": b"none"}) == ["secrets.json"]
    said = {ended.command: (ended.output + ended.messages).encode() for ended in spine.ended}
    commands = {text: text.encode() for text in spine.commands}
    assert len([text for text in spine.commands if "SparkSubmit" in text]) > len(MODES)
    assert len(list(spine.events.iterdir())) > 1
    assert {key.split("/")[0] for key in objects} >= {"data", "manifests", "seals", "runs", "heartbeats", "warehouse"}
    for shown in (files, objects, said, commands):
        assert shown
        assert spine.planted.among(shown) == []


@pytest.mark.usefixtures("ended")
def test_every_object_is_encrypted_with_the_key(spine: Secured) -> None:
    store = ObjectStore(spine.stack.settings)
    keys = [item.key for item in store.list("") if not item.key.endswith("/")]
    assert keys
    found = {key: store.client.head_object(Bucket=store.bucket, Key=key) for key in keys}
    plain = {key: head.get("ServerSideEncryption") for key, head in found.items() if head.get("SSEKMSKeyId") != KMS_KEY}
    assert plain == {}
