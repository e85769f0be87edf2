"""A plan as canonical JSON, and back."""

import json
from typing import Any

from tidemark.core.codec import decode, encode
from tidemark.core.errors import FormatError
from tidemark.core.manifest import canonical_json
from tidemark.core.plan import Plan


def plan_to_value(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object, to embed in a step's result."""
    value: dict[str, Any] = encode(plan)
    return value


def plan_from_value(raw: Any, *, where: str) -> Plan:
    """The plan in a JSON object; raises FormatError, naming ``where`` and the field, for anything else."""
    return decode(Plan, raw, where=where)


def plan_to_json(plan: Plan) -> bytes:
    """Canonical bytes; ``parse_plan`` reads them back to an equal value."""
    return canonical_json(plan_to_value(plan))


def parse_plan(body: bytes, *, where: str) -> Plan:
    """The plan in ``body``; raises FormatError, naming ``where``, for anything else."""
    try:
        raw = json.loads(body)
    except ValueError as error:
        raise FormatError("a plan does not parse", expected="JSON", found=repr(error), where=where) from error
    return plan_from_value(raw, where=where)
