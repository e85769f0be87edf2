"""Whether Kafka still holds the records that the archive ends with."""

import logging

from tidemark.archive.ledger.history import History
from tidemark.archive.rewritten import ArchivedRecords, rewritten_error
from tidemark.kafka.log_ends import LogEnds
from tidemark.kafka.topics import logs_of
from tidemark.run import Run

_logger = logging.getLogger(__name__)


def require_same_records(run: Run, history: History) -> None:
    """Compare the last archived record of each log that Kafka has with Kafka's record at its offset.

    Raises PositionError, with both records of each log and the rewritten range, where a log was truncated and may have
    grown again; only warns if the stream accepts that (``archive.on_rewrite``).
    """
    kafka, known = run.settings.kafka, history.extents()
    topics = sorted({log.topic for log in known})
    logs = [log for topic in topics for log in logs_of(kafka, topic) if log in known]
    records = ArchivedRecords(store=run.store, layout=run.layout, kafka=kafka, history=lambda: history)
    last = records.last(logs)
    found = records.rewritten(last, LogEnds(kafka).ask(item.log for item in last))
    if not found:
        return
    error = rewritten_error(found, f"archive of {run.stream.name}")
    if run.stream.archive.on_rewrite == "stop":
        raise error
    _logger.warning("%s", error)
