"""Every permission in Kafka that the roles need for the streams: a line per topic, group, id or cluster.

A missing permission has a line of its own, with its name and the command that grants it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidemark.connections.kafka import KafkaConnection
from tidemark.definitions.stream import Stream
from tidemark.inspect.doctor.checkup import Checkup, Probe
from tidemark.inspect.doctor.kafka import CONNECTION
from tidemark.inspect.doctor.roles import KAFKA, LIVE_KAFKA, Role
from tidemark.kafka.acls import CLUSTER, Acl, Operation, acls
from tidemark.kafka.permitted import NoTopicError, may_create, permitted
from tidemark.settings import Settings
from tidemark.speed.topics import findings

# Of many names with one beginning, the doctor asks for one that no stream uses.
PROBE = "doctor"
# Operations that include DESCRIBE.
_DESCRIBING: frozenset[Operation] = frozenset({"Read", "Write", "Alter"})


@dataclass(slots=True, kw_only=True)
class _Needed:
    """The permissions on one resource, by operation, and the roles that need each."""

    first: Acl
    by_operation: dict[Operation, Acl] = field(default_factory=dict)
    roles: dict[Operation, list[str]] = field(default_factory=dict)

    def add(self, role: str, acl: Acl) -> None:
        self.by_operation.setdefault(acl.operation, acl)
        names = self.roles.setdefault(acl.operation, [])
        if role not in names:
            names.append(role)


def rights_checks(settings: Settings, streams: Sequence[Stream], roles: Sequence[Role]) -> Iterator[Probe]:
    """A check per resource, the topics first, then a check per stream of its topics' settings."""
    needed: dict[str, _Needed] = {}
    keys: dict[str, list[str]] = {}
    for stream in streams:
        for role in roles:
            for acl in acls(role, stream, settings):
                entry = needed.setdefault(_check_key(acl), _Needed(first=acl))
                entry.add(role, acl)
                keys.setdefault(stream.name, []).append(_check_key(acl))
    sources = {stream.topic for stream in streams}
    for entry in needed.values():
        first = entry.first
        kafka = settings.kafka if first.cluster == "source" else settings.speed_kafka
        yield Probe(
            subject=_subject(first),
            name=_resource(first),
            ask=partial(_ask, kafka, entry, first.cluster == "source" and first.name in sources),
            needs=(f"{_subject(first)}: {CONNECTION}",),
        )
    if {"speed", "reader"} & set(roles):  # others may not ask for the settings of brokers
        for stream in streams:
            needs = tuple(dict.fromkeys(keys.get(stream.name, ())))
            yield Probe(
                subject=KAFKA,
                name=f"settings of {stream.name}",
                ask=partial(_settings, settings, stream),
                needs=needs,
            )


def _subject(acl: Acl) -> str:
    return KAFKA if acl.cluster == "source" else LIVE_KAFKA


def _resource(acl: Acl) -> str:
    if acl.name == CLUSTER:
        return "cluster"
    return f"{acl.resource} {acl.name}{'*' if acl.prefixed else ''}"


def _check_key(acl: Acl) -> str:
    return f"{_subject(acl)}: {_resource(acl)}"


def _ask(kafka: KafkaConnection, needed: _Needed, is_source: bool, probe: Probe) -> Iterable[Checkup]:
    acl, wanted = needed.first, frozenset(needed.by_operation)
    name = acl.name + PROBE if acl.prefixed else acl.name
    try:
        allowed = permitted(kafka, acl.resource, name, wanted)
    except NoTopicError:
        yield from _without_topic(kafka, needed, is_source, probe)
        return
    missing = [operation for operation in needed.by_operation if operation not in allowed]
    if _DESCRIBING & set(missing):  # whichever is granted includes it
        missing = [operation for operation in missing if operation != "Describe"]
    yield from (_missing(kafka, needed, operation, probe) for operation in missing)
    if not missing:
        yield probe.ok(f"permitted: {_listed(needed.by_operation)}")


def _without_topic(kafka: KafkaConnection, needed: _Needed, is_source: bool, probe: Probe) -> Iterable[Checkup]:
    """The user may know that there is no such topic."""
    topic = needed.first.name
    if is_source:
        create = f"kafka-topics.sh --bootstrap-server {kafka} --create --topic {topic}"
        yield probe.failed("the topic does not exist", f"Correct 'topic' in the stream's definition, or: {create}")
    elif "Create" not in needed.by_operation:
        yield probe.skipped("the topic does not exist yet: check it again when the speed layer has run")
    elif not may_create(kafka, topic):
        yield _missing(kafka, needed, "Create", probe)
    else:
        yield probe.ok("the topic does not exist; the speed layer may create it; check it again afterwards")


def _missing(kafka: KafkaConnection, needed: _Needed, operation: Operation, probe: Probe) -> Checkup:
    acl = needed.by_operation[operation]
    principal = f"User:{kafka.client().get('sasl.username', 'NAME')}"
    roles = ", ".join(needed.roles[operation])
    found = f"not permitted. Needed by {roles}: {acl.purpose}"
    return probe.failed(found, acl.command(str(kafka), principal), name=f"{operation} on {_resource(acl)}")


def _listed(operations: Mapping[Operation, Acl]) -> str:
    return ", ".join(operations)


def _settings(settings: Settings, stream: Stream, probe: Probe) -> Iterable[Checkup]:
    found = findings(stream, settings)
    for item in found:
        text = f"{item.resource}: {item.setting} is {item.found}, expected {item.expected}: {item.why}"
        yield probe.warning(text, item.fix)
    if not found:
        yield probe.ok("no dangerous setting of the source, live and dead-letter topic")
