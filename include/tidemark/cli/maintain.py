"""``tidemark maintain``: abort stale uploads, list what no manifest lists, compact manifests into the ledger."""

import re
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.text import Text

from tidemark.archive.maintenance import maintain, maintain_ledger
from tidemark.cli.connect import connect
from tidemark.core.errors import ConfigError
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore
from tidemark.streams import load_stream

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def print_maintenance(stack: str | None, stream: str, older_than: str, *, rebuild_ledger: bool) -> None:
    """Do it for one stream and say what was done; raises ConfigError for an unknown stream or an age like none.

    The ledger comes last: what is wrong with it is raised, as ``maintain_ledger`` says, with all else done and told.
    """
    age = parse_age(older_than)
    settings = connect(stack)
    definition = load_stream(stream, settings.streams_dir)
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream)
    found = maintain(store, layout, before=datetime.now(UTC) - age)
    console = Console(soft_wrap=True)
    console.print(f"s3://{store.bucket}/{layout.data_prefix}, what is older than {older_than}", style="bold")
    console.print(f"Unfinished uploads aborted: {len(found.aborted)}; younger ones left alone: {len(found.left)}")
    for item in found.aborted:
        console.print(Text(f"  {item.started.astimezone(UTC).isoformat(timespec='seconds')}  {item.key}"))
    size = sum(item.size for item in found.orphans)
    console.print(
        f"Objects that no manifest lists: {len(found.orphans)}, {size} bytes; no reader sees them, none deleted"
    )
    for orphan in found.orphans:
        console.print(Text(f"  {orphan.size:>12}  {orphan.key}"))
    ledger = maintain_ledger(store, layout, definition, anew=rebuild_ledger)
    console.print(
        f"Ledger {'made anew' if rebuild_ledger else 'agrees with the manifests'}: {ledger.manifests} of them in"
        f" {ledger.segments} segments, {ledger.new} new"
    )


def parse_age(text: str) -> timedelta:
    """``90m``, ``12h``, ``1d``; raises ConfigError for anything else."""
    found = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if found is None:
        raise ConfigError("not an age", expected="a number and s, m, h or d, like 12h", found=text)
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
