"""A layer's last heartbeat, and what to do without one that can be read."""

import logging

from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore

_logger = logging.getLogger(__name__)


def read_heartbeat(store: ObjectStore, layout: Layout, layer: str) -> Heartbeat | None:
    """The layer's last heartbeat, None if it never wrote one. Raises FormatError if it does not parse."""
    key = layout.heartbeat_key(layer)
    body = store.get(key)
    return None if body is None else parse_heartbeat(body, where=f"s3://{store.bucket}/{key}")


def readable_heartbeat(store: ObjectStore, layout: Layout, layer: str) -> Heartbeat | None:
    """As ``read_heartbeat``, for work that can continue without: None, with a warning, if it does not parse."""
    try:
        return read_heartbeat(store, layout, layer)
    except FormatError as error:
        _logger.warning("continuing without the heartbeat of the %s layer: %s", layer, error)
        return None
