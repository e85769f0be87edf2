"""A layer's heartbeat for those who can continue without it."""

import logging

from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore

_logger = logging.getLogger(__name__)


def read_heartbeat(store: ObjectStore, layout: Layout, layer: str) -> Heartbeat | None:
    """The layer's last heartbeat. None if it never wrote one, or if it does not parse: a warning names that."""
    key = layout.heartbeat_key(layer)
    body = store.get(key)
    try:
        return None if body is None else parse_heartbeat(body, where=f"s3://{store.bucket}/{key}")
    except FormatError as error:
        _logger.warning("continuing without what the %s layer has last reported: %s", layer, error)
        return None
