"""What a task counts besides rows: open files, upload times, retries."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# The calls that send a data object's bytes or make it visible.
UPLOADS = frozenset({"PutObject", "UploadPart", "CompleteMultipartUpload"})
_STARTED = "tidemark_started_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """One task's metrics.

    ``open_files`` is the most at once. ``upload_seconds`` has one entry per answered uploading call, including retries
    and pauses. ``retries`` counts the repeated requests of all calls.
    """

    open_files: int
    upload_seconds: tuple[float, ...]
    retries: int


class TaskMeter:
    """Counts for one task, or for the driver; the calls may come from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open_files = 0
        self._upload_seconds: list[float] = []
        self._retries = 0

    def listen(self, client: "S3Client") -> None:
        """Count the client's calls from now on. A call without any answer is left out: its caller fails."""
        client.meta.events.register("before-call.s3", self._before)
        client.meta.events.register("after-call.s3", self._after)

    def see_open_files(self, number: int) -> None:
        """Note the number of files that are open now."""
        self._open_files = max(self._open_files, number)

    def take(self) -> TaskMetrics:
        """The metrics since the last ``take``."""
        with self._lock:
            taken = TaskMetrics(
                open_files=self._open_files, upload_seconds=tuple(self._upload_seconds), retries=self._retries
            )
            self._open_files = self._retries = 0
            self._upload_seconds.clear()
        return taken

    # botocore's events. A handler that returns nothing lets the call continue.

    @staticmethod
    def _before(context: dict[str, Any], **_: Any) -> None:
        context[_STARTED] = time.monotonic()

    def _after(self, context: Mapping[str, Any], parsed: Mapping[str, Any], event_name: str, **_: Any) -> None:
        seconds = round(time.monotonic() - context[_STARTED], 6)
        with self._lock:
            self._retries += int(parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0))
            if event_name.rpartition(".")[2] in UPLOADS:
                self._upload_seconds.append(seconds)
