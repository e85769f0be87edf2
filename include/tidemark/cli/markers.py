"""``tidemark markers``: the markers of exactly-once delivery, read and set by a person."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.cli.connect import connect
from tidemark.cli.json_output import print_result
from tidemark.cli.output import make_table, open_console, plain
from tidemark.core.errors import PositionError, RequestError
from tidemark.definitions.stream import load_stream
from tidemark.speed.manual_markers import ManualMarkers


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRow:
    """The marker of one partition, null without one, and the offsets of its log."""

    topic: str
    partition: int
    log_start: int
    high_watermark: int
    marker: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersResult:
    """The markers of one consumer group; ``topic`` is where its transactions write them."""

    group: str
    topic: str
    markers: tuple[MarkerRow, ...]


def print_markers(
    stack: str | None,
    name: str,
    wanted: Sequence[str],
    *,
    copy_from: str | None = None,
    replay: bool = False,
    as_json: bool = False,
) -> None:
    """Copy and set markers, and print all of them. ``wanted`` are texts PARTITION=OFFSET."""
    settings = connect(stack)
    stream = load_stream(name, settings.streams_dir)
    positions = dict(map(_parse, wanted))
    markers = ManualMarkers.open(stream, settings, replay=replay)
    if copy_from is not None:
        other = ManualMarkers.open(stream, settings.model_copy(update={"deployment": copy_from}), replay=replay)
        copied = other.read()
        if not copied:
            raise RequestError(
                "a deployment has no markers",
                expected="a deployment that delivered this stream exactly once",
                found=copy_from,
                where=f"group {other.sink.group}",
                hint="Check the name: TIDEMARK_DEPLOYMENT as it was before, or bucket and prefix as in lake/prod",
            )
        copied = {partition: position for partition, position in copied.items() if partition not in positions}
        _require_forwards(copied, markers, other)
        positions = {**copied, **positions}
    markers.set(positions)
    found = markers.read()
    rows = tuple(
        MarkerRow(
            topic=item.log.topic,
            partition=item.log.partition,
            log_start=item.log_start,
            high_watermark=item.high_watermark,
            marker=found.get(item.log.partition),
        )
        for item in markers.logs
    )
    if as_json:
        print_result("markers", MarkersResult(group=markers.sink.group, topic=markers.sink.marker_topic, markers=rows))
        return
    console = open_console()
    console.print(plain(f"group {markers.sink.group}, topic {markers.sink.marker_topic}"))
    table = make_table("Topic", "Partition", "Log", "Marker", numbers=("Partition", "Marker"), fold=("Topic",))
    for row in rows:
        held = f"[{row.log_start}, {row.high_watermark})"
        marker = "none" if row.marker is None else str(row.marker)
        table.add_row(*map(plain, (row.topic, str(row.partition), held, marker)))
    console.print(table)


def _require_forwards(copied: Mapping[int, int], markers: ManualMarkers, other: ManualMarkers) -> None:
    """A copy never moves a marker back: repeated later, it would deliver records a second time."""
    own = markers.read()
    earlier = [partition for partition, position in copied.items() if own.get(partition, 0) > position]
    if earlier:
        raise PositionError(
            "a copied marker is before the present one",
            expected=f"markers of group {other.sink.group} that are not before these",
            found=", ".join(f"{copied[number]} before {own[number]} in partition {number}" for number in earlier[:5]),
            where=f"group {markers.sink.group}",
            hint="The markers were copied before, and the stream has delivered since: start it. To deliver records a"
            " second time, use --set",
        )


def _parse(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition("=")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise RequestError("not a marker", expected="PARTITION=OFFSET", found=text)
    return int(partition), int(offset)
