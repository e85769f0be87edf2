"""How many offsets a micro-batch reads if the stream's definition does not say it."""

# For each partition. Some ten seconds of work on one core, which is what a retry repeats.
ARCHIVE_OFFSETS = 2_000_000
SPEED_OFFSETS = 500_000


def offsets_per_batch(given: int | None, *, partitions: int, default: int, least: int | None = None) -> int:
    """Most offsets in one micro-batch of all partitions: the ``given`` number, else ``default`` for each partition.

    A first start, or one after an outage, would otherwise read everything that Kafka holds in one batch. ``least`` is
    the number of offsets that a batch waits for: a smaller bound would leave a rest that waits again.
    """
    return given if given is not None else max(partitions * default, least or 0)
