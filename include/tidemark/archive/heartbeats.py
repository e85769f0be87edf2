"""Read a layer's heartbeat where the work can continue without it."""

import logging

from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import Heartbeat, parse_heartbeat
from tidemark.core.layout import Layout
from tidemark.s3 import ObjectStore

_logger = logging.getLogger(__name__)


def read_heartbeat(store: ObjectStore, layout: Layout, layer: str) -> Heartbeat | None:
    """The layer's last heartbeat. None if it never wrote one. None, with a warning, if it does not parse."""
    key = layout.heartbeat_key(layer)
    body = store.get(key)
    try:
        return None if body is None else parse_heartbeat(body, where=f"s3://{store.bucket}/{key}")
    except FormatError as error:
        _logger.warning("continuing without the heartbeat of the %s layer: %s", layer, error)
        return None
