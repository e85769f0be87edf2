"""``tidemark where``: the object, manifest, seal and snapshot of one record."""

from collections.abc import Sequence

from tidemark.cli.connect import connect_s3
from tidemark.cli.output import open_console, print_fields
from tidemark.inspect.locate import CompactedBatch, Located, LocatedVersion, RecordCopy, locate


def print_location(stack: str | None, stream: str, topic: str, partition: int, offset: int) -> None:
    """Print every copy in the archive, and every version of the record's day. Raises what ``locate`` raises."""
    settings = connect_s3(stack)
    console = open_console()
    with console.status("reading manifests and seals"):
        found = locate(settings, stream, topic, partition, offset)
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
