"""Earlier names of fields and columns, the latest first: ``{"delay_minutes": ("dep_delay", "delay")}``."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from tidemark.core.text import quoted

Renamed = Mapping[str, Sequence[str]]


def require_once(renamed: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
    """The same names. Raises ValueError if two are equal, apart from case."""
    names = [name for new, earlier in renamed.items() for name in (new, *earlier)]
    times = Counter(name.casefold() for name in names)
    for name in names:
        if times[name.casefold()] > 1:
            raise ValueError(f"the name {quoted(name)} is listed twice; each name belongs to one field only")
    alone = next((new for new, earlier in renamed.items() if not earlier), None)
    if alone is not None:
        raise ValueError(f"{quoted(alone)} has no earlier name")
    return renamed


def paths(path: str, renamed: Renamed) -> list[str]:
    """A JSON path such as ``$.trip.at``, then the same below each earlier name of its first field."""
    top = re.split(r"[.\[]", path.removeprefix("$."), maxsplit=1)[0]
    rest = path.removeprefix(f"$.{top}")
    return [path, *(f"$['{name}']{rest}" for name in renamed.get(top, ()))]
