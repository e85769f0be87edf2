"""Dead letters written by hand, as docs/reference/headers.md describes them."""

from tests.conftest import Record
from tidemark.definitions.stream import Stream
from tidemark.kafka.topics import describe_topic
from tidemark.settings import Settings

START_MS = 1_700_000_000_000
Headers = list[tuple[str, bytes | None]]


def source_id(settings: Settings, stream: Stream) -> str:
    return describe_topic(settings.kafka, stream.topic)[0].topic_id


def letter(
    stream: Stream,
    topic_id: str,
    at: tuple[int, int],
    value: bytes | None,
    /,
    *,
    on: int = 0,
    key: bytes | None = b"k",
    own: Headers | None = None,
    attempt: str = "0",
    **changed: str,
) -> Record:
    """A dead letter of the source record ``at`` (partition, offset) for partition ``on`` of the dead-letter topic."""
    texts = {
        "source": f"{stream.topic}:{topic_id}:{at[0]}:{at[1]}",
        "timestamp": str(START_MS + at[1]),
        "stream": f"{stream.name}:1",
        "reason": "why not",
        "attempt": attempt,
        **changed,
    }
    ours: Headers = [(f"tidemark.{name}", text.encode()) for name, text in texts.items()]
    return key, value, START_MS, on, [*(own or []), *ours]
