"""``tidemark maintain``: what crashes and time leave behind in archive, tables and ledger."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.status import Status
from rich.text import Text

from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.definitions.stream import Stream, load_stream
from tidemark.maintenance.archive import Unfinished, maintain, maintain_ledger
from tidemark.maintenance.compaction import Compaction
from tidemark.maintenance.replaced import delete_replaced
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

if TYPE_CHECKING:
    from tidemark.maintenance.tables import TableMaintenance

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def print_maintenance(
    stack: str | None, stream: str, older_than: str, *, clean_tables: bool, compact: bool, rebuild_ledger: bool
) -> None:
    """Do it for one stream and say what was done; raises ConfigError for an unknown stream or an age like none.

    Of the tables it is only shown what would go, unless ``clean_tables``, and of small files what would be done, unless
    ``compact``.

    The ledger comes behind all that does not need it: what is wrong with it is raised, as ``maintain_ledger`` says, and
    so is what ``Compaction`` and ``delete_replaced`` find wrong.
    """
    age = parse_age(older_than)
    settings = connect(stack)
    definition = load_stream(stream, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    console = Console(soft_wrap=True)
    with console.status("reading manifests") as status:
        read = _Read(status)
        found = maintain(store, layout, before=datetime.now(UTC) - age, progress=read)
    console.print(f"s3://{store.bucket}/{layout.data_prefix}, what is older than {older_than}", style="bold")
    console.print(f"Unfinished uploads aborted: {len(found.aborted)}; younger ones left alone: {len(found.left)}")
    _print_uploads(console, found.aborted)
    size = sum(item.size for item in found.orphans)
    console.print(
        f"Objects that no manifest lists: {len(found.orphans)}, {size} bytes; no reader sees them, none deleted"
    )
    for orphan in found.orphans:
        console.print(Text(f"  {orphan.size:>12}  {orphan.key}"))
    _print_tables(console, settings, definition, delete=clean_tables)
    with console.status("reading manifests again") as status:
        ledger = maintain_ledger(
            store, layout, definition, from_scratch=rebuild_ledger, progress=_Read(status, of=read.manifests)
        )
    console.print(
        f"Ledger {'rebuilt' if rebuild_ledger else 'agrees with the manifests'}: {ledger.manifests} manifests in"
        f" {ledger.segments} segments, {ledger.new} new"
    )
    _compact_files(console, store, layout, definition, do=compact)


@dataclass(slots=True)
class _Read:
    """Says on a status line how many manifests were read so far, and of how many where that is known."""

    status: Status
    of: int = 0
    manifests: int = 0

    def __call__(self, manifests: int) -> None:
        self.manifests = manifests
        self.status.update(f"manifests read: {manifests:,}{f' of {self.of:,}' if self.of else ''}")


def _compact_files(console: Console, store: ObjectStore, layout: Layout, stream: Stream, *, do: bool) -> None:
    now = datetime.now(UTC)
    with console.status("looking for small files") as status:
        found = Compaction(
            store=store,
            layout=layout,
            stream=stream,
            now=now,
            checked=lambda ranges: status.update(f"small ranges checked: {ranges:,}"),
        ).preview()
    if do and found.batches:
        with _bar(console, "compacting", found.bytes) as progress:
            found = Compaction(store=store, layout=layout, stream=stream, now=now, progress=progress).run()
    # Not shown first and done then: what took the objects' place is read for it.
    with console.status("looking for replaced objects") as status:
        went = delete_replaced(
            store,
            layout,
            stream,
            now=now,
            delete=do,
            unfit=found.unfit,
            progress=lambda objects: status.update(f"replaced objects that nobody needs: {objects}"),
        )
    would = "" if do else " that would be"
    into = f", into {found.files_written}, {found.bytes_written} bytes" if do else ""
    console.print(f"Small files{would} compacted: {found.files} of {found.ranges} ranges, {found.bytes} bytes{into}")
    if found.young or found.other_settings or found.has_holes:
        console.print(
            f"  small ranges left alone: {found.young} younger than a day, {found.other_settings} of other archive"
            f" settings, {found.has_holes} with holes"
        )
    console.print(
        f"Replaced objects{would} deleted: {went.objects}, {went.bytes} bytes; {went.waiting} were replaced less than a"
        " week ago"
    )
    for item in went.kept:
        console.print(Text(f"  kept: {item}"))
    if not do and (found.batches or went.objects):
        console.print("No file was changed: --compact does what is shown")
    found.require_fit()


@contextmanager
def _bar(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, to be called with what was done since."""
    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield partial(bar.advance, bar.add_task(what, total=total))


def _print_tables(console: Console, settings: Settings, stream: Stream, *, delete: bool) -> None:
    from tidemark.maintenance.tables import has_tables, maintain_tables
    from tidemark.spark.session import quiet_session
    from tidemark.stack.java import BRIEF_JVM, java_command

    if not has_tables(settings, stream):
        return
    java_command()
    os.environ.update(BRIEF_JVM)
    with console.status("starting Spark, some ten seconds"):
        spark = quiet_session(settings, f"tidemark-maintain-{stream.name}")
    try:
        with console.status("looking after the tables"):
            found = maintain_tables(spark, settings, stream, now=datetime.now(UTC), delete=delete)
    finally:
        spark.stop()
    for item in found:
        print_table(console, item)
    if not delete:
        console.print("Nothing of the tables was changed: --clean-tables does what is shown")


def print_table(console: Console, item: "TableMaintenance") -> None:
    """What of one table went, or would go."""
    went = "" if item.done else " that would be"
    expiry = item.expiry
    console.print(f"Table {item.name}", style="bold")
    console.print(f"Audit branches{went} dropped: {len(expiry.branches)}")
    for branch in expiry.branches:
        console.print(Text(f"  {branch}"))
    files = f", {item.deleted} files with them" if item.done else ""
    console.print(f"Snapshots{went} expired: {len(expiry.snapshots)}, kept: {expiry.kept}{files}")
    for day, run in expiry.unsealed:
        console.print(Text(f"  history is kept from run {run} on: it published {day} and did not seal it"))
    console.print(f"Files of no snapshot{went} deleted: {len(item.orphans)}")
    for orphan in item.orphans:
        console.print(Text(f"  {orphan}"))
    console.print(f"Unfinished uploads of files{went} aborted: {len(item.uploads)}")
    _print_uploads(console, item.uploads)


def _print_uploads(console: Console, uploads: Sequence[Unfinished]) -> None:
    for item in uploads:
        console.print(Text(f"  {item.started.astimezone(UTC).isoformat(timespec='seconds')}  {item.key}"))


def parse_age(text: str) -> timedelta:
    """``90m``, ``12h``, ``1d``, up to ``99999d``; raises ConfigError for anything else."""
    found = re.fullmatch(r"(\d{1,5})([smhd])", text)  # more days lead beyond the year 1
    if found is None:
        raise ConfigError("not an age", expected="a number up to 99999 and s, m, h or d, like 12h", found=text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
