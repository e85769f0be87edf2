"""``tidemark topics``: the output topics' settings, before a stream meets what is dangerous about them."""

from rich.console import Console
from rich.markup import escape

from tidemark.cli.connect import connect
from tidemark.definitions.stream import load_stream
from tidemark.speed.topics import findings


def print_findings(stack: str | None, name: str) -> bool:
    """Print a paragraph per dangerous setting; whether there is none.

    Raises ConfigError for a stream that is not there or wrong. Topics that do not exist yet have none.
    """
    settings = connect(stack)
    stream = load_stream(name, settings.streams_dir)
    found = findings(stream, settings)
    console = Console(soft_wrap=True)
    if not found:
        console.print(f"{escape(name)}: no dangerous setting found", highlight=False)
    for item in found:
        console.print(f"[yellow]{escape(str(item))}[/yellow]", highlight=False)
    return not found
