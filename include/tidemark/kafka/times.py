"""The timestamps of Kafka's records, in ms since the epoch, as the archive holds them."""

from confluent_kafka import Message

# Kafka stores 64 bits of ms, the archive 64 bits of µs. A timestamp in ns by mistake is later than this one.
LATEST_MS = (2**63 - 1) // 1000
_DAY_MS = 86_400_000
# Spark's Kafka source takes a time before 1582-10-15 for one of the Julian calendar, as Java's old classes do.
_GREGORIAN_MS = -12_219_292_800_000
_EPOCH_JULIAN, _EPOCH_GREGORIAN = 2_440_588, 719_468  # 1970-01-01: Julian day number, and days since 0000-03-01


def timestamp_ms(message: Message) -> int:
    """The record's timestamp, or for one that does not fit the nearest that does; -1 without one."""
    return archived_ms(message.timestamp()[1])


def archived_ms(time_ms: int) -> int:
    """What the archive holds of a timestamp, to the ms.

    The same as Spark's source gives, and for a time beyond 64 bits of µs the first or last one that fits.
    """
    time_ms = min(max(time_ms, -LATEST_MS), LATEST_MS)
    if time_ms >= _GREGORIAN_MS:
        return time_ms
    days, rest = divmod(time_ms, _DAY_MS)
    return max(_gregorian_day(*_julian_date(days)) * _DAY_MS + rest, -LATEST_MS)


def _julian_date(days: int) -> tuple[int, int, int]:
    """Year, month and day in the Julian calendar of a day since 1970-01-01."""
    years, rest = divmod(4 * (days + _EPOCH_JULIAN + 32_082) + 3, 1_461)
    month = (5 * (rest // 4) + 2) // 153
    day = rest // 4 - (153 * month + 2) // 5 + 1
    return years - 4_800 + month // 10, month + 3 - 12 * (month // 10), day


def _gregorian_day(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date in the proleptic Gregorian calendar; 29 February of any year is a day."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1 - _EPOCH_GREGORIAN
