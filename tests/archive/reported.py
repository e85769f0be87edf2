"""What a stream says of itself: the lines of its log, and its heartbeat."""

import json
from typing import Any

from tests.archive.oracle import Oracle
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings


def events(output: str, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"time"')]
    return [line for line in lines if line["event"] == name]


def heartbeat(settings: Settings, stream: Stream) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Oracle(settings, stream.name).body(f"heartbeats/{stream.name}/archive.json"))
    return found
