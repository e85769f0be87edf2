"""``tidemark where``: one record's object, manifest, seal and snapshot; a day's records by key; its rejected ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from math import inf

from rich.console import Console

from tidemark.cli.connect import connect_s3
from tidemark.cli.json_output import print_result
from tidemark.cli.output import make_table, open_console, plain, print_fields
from tidemark.cli.root import FINE, NOT_FOUND_OUT
from tidemark.definitions.stream import load_stream
from tidemark.inspect.locate import (
    CompactedBatch,
    Located,
    LocatedVersion,
    Place,
    RecordCopy,
    RecordStatus,
    locate,
    record_statuses,
)
from tidemark.inspect.locate_key import (
    KeyForm,
    KeyRecords,
    UnreadObject,
    find_key,
    parse_key,
    parse_place,
    place_text,
)
from tidemark.inspect.locate_rejected import RejectedRecords, find_rejected
from tidemark.pages.keys import key_headline, key_name, key_sentences, unread_sentences
from tidemark.pages.words import record_state, second


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOfKey:
    """A record with the key.

    - topic_id: id of its topic.
    - partition: its partition.
    - offset: its offset.
    - event_time: its event time.
    - in_version: whether the day's newest version has it. Null if the day is not sealed.
    - status: its status in the snapshots of that version, with a reason. Null if neither snapshot has it.
    """

    topic_id: str
    partition: int
    offset: int
    event_time: datetime
    in_version: bool | None
    status: RecordStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsOfKey:
    """The records of a day with a key.

    - stream: name of the stream.
    - day: the day.
    - version: its newest version. Null if it is not sealed.
    - rows: number of its archived rows that were searched. Each copy counts.
    - objects: number of objects that were searched.
    - unread: objects that could not be searched completely. `objects` does not count them.
    - records: the records, by topic, topic id, partition and offset.
    - next: the value of `--from` that continues the list. Null if there are no more records.
    """

    stream: str
    day: date
    version: int | None
    rows: int
    objects: int
    unread: tuple[UnreadObject, ...]
    records: tuple[RecordOfKey, ...]
    next: str | None


def print_records(
    stack: str | None, stream_name: str, day: date, text: str, form: KeyForm, *, start: str | None = None, as_json: bool
) -> int:
    """Print the first records of the day that have the key, or those from a place on. Return the exit code.

    Raises what ``parse_key``, ``parse_place``, ``find_key`` and ``record_statuses`` raise.
    """
    key, place = parse_key(text, form), None if start is None else parse_place(start)
    settings = connect_s3(stack)
    with Console(stderr=True).status("searching the archive"):
        found = find_key(settings, stream_name, day, key, start=place, seconds=inf)
        statuses: Mapping[Place, RecordStatus] = {}
        if found.seal is not None:
            places = [item.place for item in found.records if item.in_version]
            stream = load_stream(stream_name, settings.streams_dir)
            statuses = record_statuses(settings, stream, found.seal, places)
    code = NOT_FOUND_OUT if found.unread else FINE
    if as_json:
        print_result("where", _result(stream_name, day, found, statuses))
        return code
    console = open_console()
    continued = place is not None
    console.print(plain(key_headline(found, day, key_name(text, form), continued=continued), style="bold"))
    for line in (*key_sentences(found, day, continued=continued), *unread_sentences(found)):
        console.print(plain(line))
    if not found.records:
        return code
    state = f"In version {found.seal.version}" if found.seal else "In the day's versions"
    table = make_table("Partition", "Offset", "Event time", state, numbers=("Partition", "Offset"), fold=(state,))
    for item in found.records:
        (log, offset), status = item.place, statuses.get(item.place)
        table.add_row(
            str(log.partition), str(offset), second(item.event_time), plain(record_state(status, item.in_version))
        )
    console.print(table)
    if found.next:
        console.print(plain(f"To list more records, add: --from {place_text(found.next)}"))
    return code


def _result(stream: str, day: date, found: KeyRecords, statuses: Mapping[Place, RecordStatus]) -> RecordsOfKey:
    return RecordsOfKey(
        stream=stream,
        day=day,
        version=found.seal.version if found.seal else None,
        rows=found.rows,
        objects=found.objects,
        unread=found.unread,
        records=tuple(
            RecordOfKey(
                topic_id=log.topic_id,
                partition=log.partition,
                offset=offset,
                event_time=item.event_time,
                in_version=item.in_version,
                status=statuses.get(item.place),
            )
            for item in found.records
            for log, offset in (item.place,)
        ),
        next=place_text(found.next) if found.next else None,
    )


def print_rejected(stack: str | None, stream: str, day: date, text: str | None, *, as_json: bool) -> None:
    """Print the day's reasons that have the text, and the first rejected records. Raises as ``find_rejected``."""
    settings = connect_s3(stack)
    with Console(stderr=True).status("reading the quarantine"):
        found = find_rejected(settings, stream, day, text)
    if as_json:
        print_result("where", found)
        return
    console = open_console()
    console.print(plain(_rejected_headline(found, text), style="bold"))
    if not found.rows:
        return
    if found.reasons_found > len(found.reasons):
        console.print(f"The {len(found.reasons)} most frequent of {found.reasons_found:,} reasons:")
    reasons = make_table("Records", "Reason", numbers=("Records",), fold=("Reason",))
    for item in found.reasons:
        reasons.add_row(f"{item.rows:,}", plain(item.reason))
    console.print(reasons)
    if found.rows > len(found.records):
        console.print(f"The first {len(found.records)} records:")
    records = make_table(
        "Partition", "Offset", "Event time", "Reason", numbers=("Partition", "Offset"), fold=("Reason",)
    )
    for record in found.records:
        moment = second(record.event_time) if record.event_time else "–"
        records.add_row(str(record.partition), str(record.offset), moment, plain(record.reason))
    console.print(records)


def _rejected_headline(found: RejectedRecords, text: str | None) -> str:
    all_of = f"{found.day}, version {found.version}: {found.rejected:,} rejected records"
    return all_of if text is None else f"{all_of}, {found.rows:,} for a reason with {text!r}"


def print_location(stack: str | None, stream: str, topic: str, partition: int, offset: int, *, as_json: bool) -> None:
    """Print every copy in the archive, and every version of the record's day. Raises what ``locate`` raises."""
    settings = connect_s3(stack)
    with Console(stderr=True).status("reading manifests and seals"):
        found = locate(settings, stream, topic, partition, offset)
    if as_json:
        print_result("where", found)
        return
    console = open_console()
    console.print(f"{found.topic}, partition {found.partition}, offset {found.offset}", style="bold")
    moment = found.event_time.isoformat() if found.event_time else "unknown: the offset has no row"
    console.print(f"day {found.day or 'unknown'}, event time {moment}")
    for title, fields in (*_copies(found), *map(_sealed, found.seals)):
        print_fields(console, title, fields)
    if not found.seals:
        console.print("Not sealed yet: no reconcile run has published the day.")


Block = tuple[str, dict[str, str]]


def _copies(found: Located) -> list[Block]:
    """The copies. Those that a rebuild read come first."""
    used = {(seal.writer, seal.batch) for seal in found.seals}

    def was_used(copy: RecordCopy) -> bool:
        return not used.isdisjoint(copy.batches)

    return [
        (
            "Copy in the archive" + (", used by a rebuild" if was_used(copy) else ""),
            {
                "object": copy.object or "none: the offset has no row",
                "manifest": copy.manifest,
                "committed range": f"{copy.range}, batch {copy.batch} of writer {copy.writer}",
                **({"compacted from": _batches(copy.compacted_from)} if copy.compacted_from else {}),
                "topic id": copy.log.topic_id,
            },
        )
        for copy in sorted(found.copies, key=lambda item: not was_used(item))
    ]


def _batches(found: Sequence[CompactedBatch]) -> str:
    return ", before that ".join(f"batch {item.batch} of writer {item.writer}" for item in found)


def _sealed(seal: LocatedVersion) -> Block:
    match seal.status:
        case ("published", _):
            title = "Published"
        case ("quarantined", reason):
            title = f"Quarantined: {reason}"
        case ("removed", duplicate):
            title = f"Removed: {duplicate}"
        case _ if seal.writer is None:
            title = "Not in this version: archived later, or lost"
        case _:
            title = "Sealed, but in neither snapshot of the seal"
    return title, {
        "seal": f"{seal.key} (version {seal.version})",
        "snapshot": str(seal.snapshot_id or "none"),
        "quarantine snapshot": str(seal.quarantine_snapshot_id or "none"),
        "run": seal.run,
    }
