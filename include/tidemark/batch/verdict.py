"""What a saved audit says of the rows it looked at."""

from collections.abc import Mapping
from typing import Any


def condemns(audit: Mapping[str, Any]) -> bool:
    """Whether a critical check looked at the rows and did not pass: to audit the same rows again is pointless.

    An audit that failed before its checks, or one whose checks could not be made, says nothing about the rows.
    """
    return any(
        item["severity"] == "critical" and item["success"] is not True and item["exception"] is None
        for item in audit.get("checks", ())
    )
