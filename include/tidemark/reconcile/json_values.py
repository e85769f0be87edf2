"""Values of a table as JSON and as text of a bounded length."""

import math
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

from tidemark.core.text import ELLIPSIS, SHOWN_MAX, cut


def safe(value: Any) -> Any:
    """``value`` in a form that strict JSON can hold: no NaN, no bytes, long text clipped."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return clip(value)
    if hasattr(value, "asDict"):  # a Spark row
        return safe(value.asDict())
    if isinstance(value, Mapping):
        return {clip(str(key)): safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [safe(item) for item in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        digits = value.hex()  # two for each byte
        return digits if len(digits) <= SHOWN_MAX else digits[: SHOWN_MAX - 2] + ELLIPSIS
    return safe(value.item()) if hasattr(value, "item") else clip(str(value))


def clip(text: str) -> str:
    """``text``, cut to 200 characters with an ellipsis where it is longer."""
    return cut(text, SHOWN_MAX)
