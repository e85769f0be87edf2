"""Names that Tidemark uses in Kafka beside those of a stream's definition: groups, transactional ids, topics."""

from typing import Literal

from tidemark.definitions.stream import Stream
from tidemark.settings import Settings

# Groups of readers that never join them and commit nothing.
POSITIONS_GROUP = "tidemark-positions"
EVIDENCE_GROUP = "tidemark-evidence"
ADOPT_GROUP = "tidemark-adopt"
# Kafka's own topics of markers and transactions.
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"


def delivery_prefix(layer: Literal["speed", "replay"], stream: Stream, settings: Settings) -> str:
    """What the groups and transactional ids of the stream's exactly-once delivery begin with; a topic id follows."""
    return f"{settings.client_prefix}-{layer}-{stream.name}-"


def marker_topic(topic: str) -> str:
    """The empty topic on whose offsets the markers of deliveries to, or from, ``topic`` are committed."""
    return f"{topic}.markers"
