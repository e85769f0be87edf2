"""Requests that a proxy saw, counted by kind as ``tidemark.core.requests`` does."""

import re
from collections import Counter
from collections.abc import Iterable

from tidemark.core.requests import Requests

Seen = tuple[str, str, int]  # method, target and status, as in FaultProxy.log


def kind_of(method: str, target: str) -> str:
    """The field of Requests for a request with this target: a path and a query."""
    _, _, query = target.partition("?")
    names = {part.partition("=")[0] for part in query.split("&")}
    match method:
        case "GET" if names & {"list-type", "uploads"}:
            return "list"
        case "PUT" if "partNumber" in names:
            return "part"
        case "POST" if "delete" in names:
            return "delete"
    return method.lower()


def counted(seen: Iterable[Seen]) -> Requests:
    """The numbers of requests by kind."""
    kinds = Counter(kind_of(method, target) for method, target, _ in seen)
    return Requests(**kinds)


def steady(seen: Iterable[Seen], layer: str, first: int, last: int) -> list[Seen]:
    """What was sent between the commits of two batches of a query, so in batches ``first + 1`` to ``last``.

    Heartbeats are left out: time decides their number.
    """
    seen = list(seen)
    at = [
        number
        for number, (method, target, _) in enumerate(seen)
        if method == "PUT" and re.search(rf"/{layer}/commits/({first}|{last})$", target)
    ]
    start, end = at
    return [item for item in seen[start + 1 : end + 1] if "/heartbeats/" not in item[1]]
