"""A lineage tool for tests: an HTTP server that keeps the events it gets, and the graph that they make."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attr
import jsonschema
from openlineage.client import facet_v2

# The required part of https://openlineage.io/spec/2-0-2/OpenLineage.json for events about runs.
_FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {"_producer": {"format": "uri"}, "_schemaURL": {"format": "uri"}},
    },
}
_NAMED = {"namespace": {"type": "string", "minLength": 1}, "name": {"type": "string", "minLength": 1}}
_DATASET = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {**_NAMED, "facets": _FACETS, "inputFacets": _FACETS, "outputFacets": _FACETS},
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "required": ["eventType", "eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"type": "string", "format": "uri"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": _FACETS},
            "additionalProperties": False,
        },
        "job": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {**_NAMED, "facets": _FACETS},
            "additionalProperties": False,
        },
        "inputs": {"type": "array", "items": _DATASET},
        "outputs": {"type": "array", "items": _DATASET},
    },
    "additionalProperties": False,
}
Node = tuple[str, str]


@dataclass
class LineageTool:
    """The events it got, in their order."""

    url: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def of(self, job: str, state: str | None = None) -> list[dict[str, Any]]:
        """The events of the job of this name, all or those of one state."""
        return [it for it in self.events if it["job"]["name"] == job and state in {None, it["eventType"]}]


@contextmanager
def lineage_tool() -> Iterator[LineageTool]:
    """A running server, on a free port."""
    tool = LineageTool(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            tool.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        tool.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield tool
        server.shutdown()
        thread.join()


def events_of(folder: Path) -> list[dict[str, Any]]:
    """The events that a file transport has written into the folder, in their order."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())]
    return sorted(found, key=lambda event: event["eventTime"])


def check_events(events: Sequence[dict[str, Any]]) -> None:
    """Each event is valid, and each run begins with START and has one end at most."""
    assert events
    checker = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
    ends: dict[str, list[str]] = {}
    for event in events:
        assert [f"{error.json_path}: {error.message}" for error in checker.iter_errors(event)] == []
        places = [event["run"], event["job"], *event.get("inputs", []), *event.get("outputs", [])]
        for place in places:
            for kind in ("facets", "inputFacets", "outputFacets"):
                for facet in place.get(kind, {}).values():
                    _check_facet(facet)
        ends.setdefault(event["run"]["runId"], []).append(event["eventType"])
    assert {states[0] for states in ends.values()} == {"START"}
    assert max(sum(state not in {"START", "RUNNING"} for state in states) for states in ends.values()) <= 1


def _check_facet(facet: dict[str, Any]) -> None:
    """The facet has no field but those that the specification's class of its schema has, and all that it requires."""
    name = facet["_schemaURL"].rpartition("/")[2]
    modules = [getattr(facet_v2, item) for item in dir(facet_v2)]
    (kind,) = {getattr(module, name) for module in modules if hasattr(module, name)}
    fields = {it.name.lstrip("_"): it for it in attr.fields(kind)}
    assert {key.lstrip("_") for key in facet} <= fields.keys(), facet
    required = {key for key, it in fields.items() if it.default is attr.NOTHING}
    assert required <= {key.lstrip("_") for key in facet}, facet


def reached(events: Sequence[dict[str, Any]], start: Node) -> set[Node]:
    """Every dataset that is made from this one, over however many jobs."""
    edges: dict[Node, set[Node]] = {}
    for event in events:
        made = {(it["namespace"], it["name"]) for it in event.get("outputs", [])}
        for item in event.get("inputs", []):
            edges.setdefault((item["namespace"], item["name"]), set()).update(made)
    found: set[Node] = set()
    to_do = [start]
    while to_do:
        new = edges.get(to_do.pop(), set()) - found
        found |= new
        to_do += new
    return found
