"""Which record fails, found by halving: without I/O, the caller tries each range."""

from collections.abc import Callable, Iterable

from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import LogRange


def first_failing(
    spans: Iterable[LogRange], fails: Callable[[LogRange], bool], has_time: Callable[[], bool]
) -> LogRange | None:
    """The first offset that fails of the first span that does; None if no span fails.

    Where ``has_time`` says no, it is the range that is left: that much is known. A record that does not fail every time
    gives None as well. A span costs one try of its own, and as much again for its halves.
    """
    for span in spans:
        if not has_time():
            return None
        if not fails(span):
            continue
        found = span
        while len(found.range) > 1 and has_time():
            middle = (found.range.start + found.range.end) // 2
            first, second = (
                LogRange(log=span.log, range=OffsetRange(start=start, end=end))
                for start, end in ((found.range.start, middle), (middle, found.range.end))
            )
            found = first if fails(first) else second
        # The last half may never have been tried by itself.
        return found if len(found.range) > 1 or fails(found) else None
    return None
