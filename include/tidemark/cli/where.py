"""``tidemark where``: one record's object, manifest, seal and snapshot."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.inspect.locate import Located, Origin, RecordCopy, Sealed, locate


def print_location(stack: str | None, stream: str, topic: str, partition: int, offset: int) -> None:
    """Print every copy in the archive and every version of the day that holds the record."""
    settings = connect(stack)
    console = Console(soft_wrap=True)
    with console.status("reading manifests and seals"):
        found = locate(settings, stream, topic, partition, offset)
    console.print(f"{found.topic}, partition {found.partition}, offset {found.offset}", style="bold")
    moment = found.event_time.isoformat() if found.event_time else "unknown: the offset came out as no row"
    console.print(f"day {found.day or 'unknown'}, event time {moment}")
    for title, fields in (*_copies(found), *map(_sealed, found.seals)):
        console.print(Text(title, style="bold"))
        for label, value in fields.items():
            console.print(Text(f"  {label:<21}{value}"))  # never folded: keys are there to be copied
    if not found.seals:
        console.print("Not sealed yet: no reconcile run has published the day.")


Block = tuple[str, dict[str, str]]


def _copies(found: Located) -> list[Block]:
    """The copies, those that a seal's rebuild read first."""
    used = {(seal.writer, seal.batch) for seal in found.seals}

    def was_used(copy: RecordCopy) -> bool:
        return not used.isdisjoint(copy.batches)

    return [
        (
            "Copy in the archive" + (", the one used" if was_used(copy) else ""),
            {
                "object": copy.object or "none: the offset came out as no row",
                "manifest": copy.manifest,
                "committed range": f"{copy.range}, batch {copy.batch} of writer {copy.writer}",
                **({"compacted from": _told(copy.origins)} if copy.origins else {}),
                "topic id": copy.log.topic_id,
            },
        )
        for copy in sorted(found.copies, key=lambda item: not was_used(item))
    ]


def _told(origins: Sequence[Origin]) -> str:
    return ", before that ".join(f"batch {item.batch} of writer {item.writer}" for item in origins)


def _sealed(seal: Sealed) -> Block:
    match seal.standing:
        case ("published", _):
            title = "Published"
        case ("quarantined", reason):
            title = f"Quarantined: {reason}"
        case ("removed", duplicate):
            title = f"Removed: {duplicate}"
        case _ if seal.writer is None:
            title = "Not part of this version: archived after it, or lost before"
        case _:
            title = "Sealed, but in neither of the seal's snapshots"
    return title, {
        "seal": f"{seal.key} (version {seal.version})",
        "snapshot": str(seal.snapshot_id or "none"),
        "quarantine snapshot": str(seal.quarantine_snapshot_id or "none"),
        "run": seal.run,
    }
