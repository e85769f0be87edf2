"""Records whose key, value, timestamp and headers lie at their limits: each field alone, and each pair of fields."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

NOON_MS = 1_358_164_800_000  # 2013-01-14 12:00 UTC
ARCHIVE_LATEST_MS = 9_223_372_036_854_775  # the latest whose µs have 64 bits
# The archive has other times of these. Before 1582-10-15, Spark takes them for times of the Julian calendar.
_OTHER_MS = {
    -62_135_596_800_000: -62_135_424_000_000,  # 0001-01-01, which Go and .NET have for no time, is 0001-01-03
    -12_219_292_800_001: -12_220_156_800_001,
    -(2**63): -9_223_183_684_854_775,  # the earliest that fits, so taken
}
LARGE = 100_000
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, kw_only=True)
class HostileRecord:
    """A record to produce. ``good``: its value is an event of the schema ``n BIGINT``."""

    key: bytes | None = b"k"
    value: bytes | None = b'{"n":1}'
    good: bool = True
    timestamp_ms: int = NOON_MS
    headers: Headers = ()

    @property
    def archived_ms(self) -> int:
        """The timestamp in the archive."""
        return _OTHER_MS.get(self.timestamp_ms, min(self.timestamp_ms, ARCHIVE_LATEST_MS))


_KEYS = (None, b"", b"\x00", b"\xff\xfe\xc3", b"k" * LARGE)
_GOOD = (
    b'{"n":9223372036854775807}',
    b'{"n":-9223372036854775808}',
    b' {"n" : 1, "other": [{"n": "\\u0000"}]} ',
    b'{"n":1,"other":"%s"}' % (b"x" * LARGE),
)
_BAD = (
    None,
    b"",
    b"\x00",
    b"\xff\xfe\xc3",
    b"{",
    b"[" * 5_000,
    b'{"n":9223372036854775808}',
    b'{"n":1e999}',
    b"x" * LARGE,
)
_TIMES_MS = (
    *_OTHER_MS,
    -5,
    1,
    NOON_MS + 1,
    253_402_300_799_999,  # the last of the year 9999
    NOON_MS * 1_000,
    ARCHIVE_LATEST_MS,
    ARCHIVE_LATEST_MS + 1,
    NOON_MS * 1_000_000,
    2**63 - 1,
)
_HEADERS: tuple[Headers, ...] = (
    [("h", None)],
    [("", b"")],
    [("h", b"1"), ("h", b"2"), ("h", None)],
    [("\u00fc\U0001f30a", b"\xff\x00")],
    [("tidemark.source", b"t:other:0:0"), ("tidemark.attempt", b"x")],
    [(f"h{number}", b"%d" % number) for number in range(500)],
    [("h", b"x" * LARGE)],
)
_LIMITS: dict[str, list[dict[str, object]]] = {
    "key": [{"key": key} for key in _KEYS],
    "value": [{"value": value, "good": True} for value in _GOOD] + [{"value": value, "good": False} for value in _BAD],
    "timestamp": [{"timestamp_ms": time_ms} for time_ms in _TIMES_MS],
    "headers": [{"headers": headers} for headers in _HEADERS],
}


def hostile_records() -> Iterator[HostileRecord]:
    """All of them, between two usual records."""
    usual = HostileRecord()
    yield usual
    for limits in _LIMITS.values():
        yield from (replace(usual, **changes) for changes in limits)  # type: ignore[arg-type]  # fields by name
    for first, second in combinations(_LIMITS.values(), 2):
        for one in first:
            yield from (replace(usual, **one, **other) for other in second)  # type: ignore[arg-type]  # as above
    yield usual
