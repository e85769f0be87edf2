"""The archive stream on a thread of the test's process, until the test ends it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tests.waiting import wait_until
from tidemark.archive.stream import driver as archive_stream
from tidemark.archive.stream.driver import archive
from tidemark.archive.stream.schedule import Alarm
from tidemark.definitions.stream import Stream
from tidemark.settings import Settings
from tidemark.spark import streaming

DEADLINE_S = 240


class Running:
    """``ended`` resolves when the stream ends, with its error if it failed."""

    def __init__(self, spark: SparkSession, stream: Stream, ended: Future[None]) -> None:
        self.ended = ended
        self._spark, self._stream = spark, stream

    def until_waiting(self) -> None:
        """Wait until the lasting query looked for records at least once and found none: a minimum counts by then."""

        def waiting() -> bool:
            assert not self.ended.done(), self.ended.exception()
            name = f"archive-{self._stream.name}"
            messages = [query.status["message"] for query in self._spark.streams.active if query.name == name]
            return messages in (["Waiting for data to arrive"], ["Waiting for next trigger"])

        wait_until(waiting, "the query waits for records", DEADLINE_S)


@contextmanager
def running(spark: SparkSession, stream: Stream, settings: Settings, alarm: Alarm | None = None) -> Iterator[Running]:
    """Start the stream; at the end stop it as SIGTERM does, and raise its error."""
    streaming._stop.clear()
    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_stream, "POLL_S", 0.1)
        ended = pool.submit(archive, spark, stream, settings, alarm=alarm)
        try:
            yield Running(spark, stream, ended)
        finally:
            streaming._stop.set()
            try:
                ended.result(DEADLINE_S)
            finally:
                streaming._stop.clear()
