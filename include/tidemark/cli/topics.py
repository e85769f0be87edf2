"""``tidemark topics``: dangerous settings of a stream's output topics."""

from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.cli.output import open_console
from tidemark.definitions.stream import load_stream
from tidemark.speed.topics import findings


def print_findings(stack: str | None, name: str) -> bool:
    """Print a paragraph per dangerous setting. Return whether there is none."""
    settings = connect(stack)
    stream = load_stream(name, settings.streams_dir)
    found = findings(stream, settings)
    console = open_console()
    if not found:
        console.print(f"{escape(name)}: no dangerous setting found", highlight=False)
    for item in found:
        console.print(f"[yellow]{escape(str(item))}[/yellow]", highlight=False)
    return not found
