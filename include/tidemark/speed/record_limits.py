"""What the output topics accept of one record."""

from dataclasses import dataclass

# A reason in a header is truncated, so this bounds what Tidemark's own headers add to a record.
HEADER_ROOM_BYTES = 64 * 1024
NO_LIMIT_MS = 2**63 - 1  # Kafka's own value for it
_CLIENT_BYTES_MAX = 1_000_000_000  # of librdkafka's message.max.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """What both output topics accept.

    - live, dead_letter: ``max.message.bytes`` of each.
    - before_ms, after_ms: how far a record's timestamp may be before and after the broker's time, on both.
    """

    live: int
    dead_letter: int
    before_ms: int = NO_LIMIT_MS
    after_ms: int = NO_LIMIT_MS

    @property
    def client_bytes(self) -> int:
        """The largest record or request that a client must accept, so that the topics' limits decide."""
        return min(max(self.live, self.dead_letter) + HEADER_ROOM_BYTES, _CLIENT_BYTES_MAX)
