"""``tidemark status STREAM --layer LAYER``: whether one process is alive, by its heartbeat alone; quick, for probes."""

from datetime import UTC, datetime

from tidemark.cli.connect import connect_s3
from tidemark.cli.layers import age_text
from tidemark.cli.output import duration, open_console, plain
from tidemark.cli.root import FINE, WRONG
from tidemark.definitions.stream import load_stream
from tidemark.inspect.health import LayerHealth, read_layer


def print_layer(stack: str | None, name: str, layer: str, *, stale_seconds: float, as_json: bool) -> int:
    """Print one line. Return the exit code, which is 0 for other problems: nobody should restart a process for them."""
    settings = connect_s3(stack)
    stream = load_stream(name, settings.streams_dir).name
    found = read_layer(settings, stream, layer, stale_seconds=stale_seconds, now=datetime.now(UTC))
    if as_json:
        from tidemark.cli.json_output import print_result
        from tidemark.cli.status_result import StatusResult
        from tidemark.inspect.status_rows import layer_row

        print_result("status", StatusResult(fine=found.alive, layer=layer_row(found)))
    else:
        text = f"{'Yes' if found.alive else 'No'}: {stream} {layer} {_state(found, stale_seconds)}"
        open_console().print(plain(text, style="green" if found.alive else "red"))
    return FINE if found.alive else WRONG


def _state(found: LayerHealth, stale_seconds: float) -> str:
    beat, seconds = found.heartbeat, found.age_seconds
    if found.unreadable:
        return f"heartbeat unreadable: {found.unreadable}"
    if beat is None:
        return "never started"
    age = f"from the future, {age_text(seconds)}" if seconds < -stale_seconds else f"{duration(max(seconds, 0.0))} ago"
    return f"{beat.state}, heartbeat {age}" + (f": {beat.error}" if beat.error else "")
