"""The JSON Schema of what each command prints with ``--json``, and of a run's report. For the documentation and the
tests only: it is slow.

``make schemas`` writes a file for each command, and one for ``report.json``.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tidemark.cli.acls import AclsResult
from tidemark.cli.adopt import AdoptResult
from tidemark.cli.backfill import BackfillResult
from tidemark.cli.delivery import DeliveryResult
from tidemark.cli.doctor import DoctorResult
from tidemark.cli.jars import JarsResult
from tidemark.cli.json_output import VERSION, JsonError
from tidemark.cli.maintain import MaintainResult
from tidemark.cli.markers import MarkersResult
from tidemark.cli.one_run import RunResult
from tidemark.cli.replay import ReplayResult
from tidemark.cli.rollback import RolledBack
from tidemark.cli.status_result import StatusResult
from tidemark.cli.streams import StreamsResult
from tidemark.cli.verify import VerifyAllResult, VerifyResult
from tidemark.cli.where import RecordsOfKey
from tidemark.inspect.locate import Located
from tidemark.inspect.locate_rejected import RejectedRecords
from tidemark.reconcile.report.values import FORMAT, Report
from tidemark_verify import CheckedCertificates

# Of ``tidemark``: every command but those that run until Ctrl-C, up and demo.
RESULTS: dict[str, Any] = {
    "acls": AclsResult,
    "adopt": AdoptResult,
    "backfill": BackfillResult,
    "delivery": DeliveryResult,
    "doctor": DoctorResult,
    "jars": JarsResult,
    "maintain": MaintainResult,
    "markers": MarkersResult,
    "reconcile": RunResult,
    "replay": ReplayResult,
    "rollback": RolledBack,
    "status": StatusResult,
    "streams": StreamsResult,
    "verify": VerifyResult | VerifyAllResult,
    "where": Located | RecordsOfKey | RejectedRecords,
}
# Commands of their own.
OTHER_RESULTS: dict[str, Any] = {"tidemark-verify": CheckedCertificates}


def schema(command: str) -> dict[str, Any]:
    """The schema of what the command prints with ``--json``."""
    result = TypeAdapter((RESULTS | OTHER_RESULTS)[command]).json_schema(mode="serialization")
    error = TypeAdapter(JsonError).json_schema(mode="serialization")
    definitions = {**result.pop("$defs", {}), **error.pop("$defs", {})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": command_line(command),
        "type": "object",
        "properties": {
            "version": {"const": VERSION, "description": "Version of this format."},
            "command": {"const": command},
            "result": {"anyOf": [result, {"type": "null"}]},
            "error": {"anyOf": [error, {"type": "null"}]},
        },
        "required": ["version", "command", "result", "error"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def command_line(command: str) -> str:
    """What a person types to get this JSON."""
    return f"{'' if command in OTHER_RESULTS else 'tidemark '}{command} --json"


def report_schema() -> dict[str, Any]:
    """The schema of ``report.json`` in the folder of a run. Without a ``result``, the report itself failed."""
    report = TypeAdapter(Report).json_schema(mode="serialization")
    definitions = report.pop("$defs", {})
    report["properties"]["format"] = {"const": FORMAT, "description": "Version of this format."}
    texts = {name: {"type": "string"} for name in ("step", "started_at", "status")}
    nullable = {name: {"type": ["string", "null"]} for name in ("error", "kind")}
    properties = {**texts, "seconds": {"type": "number"}, **nullable, "result": {"anyOf": [report, {"type": "null"}]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "report.json of a reconcile run",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "$defs": definitions,
    }


def text(command: str) -> str:
    """The schema as the file in the documentation has it."""
    return _file(schema(command))


def report_text() -> str:
    """The schema of the report as its file has it."""
    return _file(report_schema())


def _file(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in RESULTS | OTHER_RESULTS:
        (Path(sys.argv[1]) / f"{name}.schema.json").write_text(text(name), encoding="utf-8")
    (Path(sys.argv[1]) / "report.schema.json").write_text(report_text(), encoding="utf-8")
