"""JSON paths of one field, such as ``$.trip.stops[1].at``."""

import re

_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<at>\d{1,9})\]|\['(?P<quoted>[^']+)'\]")


def steps(path: str) -> list[str | int]:
    """Names and positions in order, outermost first. Raises ValueError with the part that is none."""
    found: list[str | int] = []
    at = 1  # after the $
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            raise ValueError(f"not a step of a JSON path, such as .name or [0]: {path[at:]!r}")
        found.append(int(step["at"]) if step["at"] else step["name"] or step["quoted"])
        at = step.end()
    return found
