"""Explain a failed Spark job: one sentence instead of pages of stack trace, and what to do."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.errors import AnalysisException

from tidemark.core import errors
from tidemark.core.errors import (
    ConfigError,
    ConflictError,
    FormatError,
    ServiceError,
    TidemarkError,
    TransformError,
)
from tidemark.core.manifest import WITHOUT_OBJECT
from tidemark.core.masking import MASK, masked_cause
from tidemark.kafka.times import LATEST_MS
from tidemark.spark.executor_failures import executor_error

_OURS = re.compile(r"tidemark\.core\.errors\.(\w+): (.*)")
_KAFKAS = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)(?:: (.*))?")
# Spark's text ends with the cause: "… Lost task 0.0 in stage 1.0 (TID 1) (host executor 1): CAUSE".
_LOST_TASK = re.compile(r"Lost task .*?\(TID \d+\) \(.*?\): (.*)")
# Spark converts a record's ms to µs before it has a row.
_TIME_RANGE = re.compile(r"ArithmeticException: long overflow\n(?:\s+at .*\n)*?\s+at .*\.KafkaRecordToRowConverter\.")
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\b.*?\] Encountered error while reading file (\S+?)\.\s")
# Causes of such a failure that lie in the file's bytes; others are S3's.
_DAMAGE = re.compile(r"^(org\.apache\.parquet|shaded\.parquet|com\.github\.luben\.zstd)\.|is not a Parquet file")
# SQL's data exceptions, duplicate keys, failing functions, limits of a value and raise_error; errors raised in Python.
_OF_ROWS = re.compile(r"SQLSTATE: (?:22|23|39|54|P0)\w{3}|\bPythonException\b|thrown from the Python worker")
# Errors in Python that the machine causes.
_OF_MACHINE = re.compile(
    r"(?:\w+\.)*\w*(?:(?:Memory|Import|ModuleNotFound|OS|IO|SSL|FileNotFound|Permission|BrokenPipe)Error"
    r"|(?:Connect|Timeout)\w*Error)\b|RuntimeError: can't start new thread"
)
# After the indented lines of the frames.
_RAISED = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
# Spark's advice to compute something else instead.
_SETTINGS = re.compile(r' If necessary set "[\w.]+" to "\w+" to bypass this error\.')
# Where a column's expression was written, and the frames of a Python function that raised.
_CALLED_FROM = re.compile(r"was called from\n(.+?):(\d+)$", re.MULTILINE)
_FRAME = re.compile(r'File "(.+?)", line (\d+)')


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Kafka's exceptions by name, and our error for them."""

    names: tuple[str, ...]
    kind: type[TidemarkError]
    problem: str
    hint: str


_REPEATED = "Nothing acknowledged is lost, and the next start repeats what failed"
_MEANINGS = (
    _Meaning(
        ("RecordTooLargeException", "RecordBatchTooLargeException"),
        ConfigError,
        "a record is too large for Kafka",
        "Raise max.message.bytes of the topic it goes to, then start again",
    ),
    _Meaning(
        ("TopicAuthorizationException", "ClusterAuthorizationException", "GroupAuthorizationException"),
        ServiceError,
        "Kafka does not allow it",
        "Grant the stream's user READ on the source, WRITE and DESCRIBE on its output topics (kafka-acls.sh), then"
        f" start again. {_REPEATED}",
    ),
    _Meaning(
        ("SaslAuthenticationException", "SslAuthenticationException"),
        ServiceError,
        "Kafka does not accept the stream's credentials",
        f"Correct them, then start again. {_REPEATED}",
    ),
    _Meaning(
        ("UnknownTopicOrPartitionException", "UnknownTopicIdException", "InvalidTopicException"),
        ServiceError,
        "the topic was deleted",
        f"Missing output topics are created at the next start. {_REPEATED}",
    ),
    _Meaning(
        ("InvalidRecordException", "InvalidTimestampException", "CorruptRecordException"),
        ConfigError,
        "Kafka refuses a record",
        "Run 'tidemark status STREAM': it checks the topic's cleanup.policy and message.timestamp settings",
    ),
    _Meaning(
        ("ProducerFencedException", "InvalidProducerEpochException", "FencedInstanceIdException"),
        ConflictError,
        "another producer replaced this one",
        "Stop all but one of the applications that deliver this stream",
    ),
    _Meaning(
        ("NotEnoughReplicasException", "NotEnoughReplicasAfterAppendException", "TimeoutException"),
        ServiceError,
        "Kafka did not acknowledge in time",
        "A broker is down, a partition has no leader, or fewer replicas are in sync than min.insync.replicas: see"
        f" kafka-topics.sh --describe --unavailable-partitions, --under-min-isr-partitions. {_REPEATED}",
    ),
)


class TimeRangeError(FormatError):
    """A record's timestamp is later or earlier than Spark's Kafka source can hold.

    The layers read such records by Kafka's client (``client_source``). Correct the producer: it writes another unit
    than milliseconds.
    """


def task_error(error: Exception, *, where: str, personal: bool, code: Path | None = None) -> TidemarkError:
    """The TidemarkError that a task raised, found in Spark's text; or an explanation of Kafka's or any other error.

    ConfigError and ConflictError need an action; a ServiceError may be over at the next start. With the ``code`` of a
    transformation that the rows went through, an error of a row is a TransformError. For a stream with ``personal``
    data, texts that may show a value are masked.
    """
    text = _said(error)
    if ours := _OURS.findall(text):
        kind = getattr(errors, ours[-1][0], TidemarkError)
        raised = kind(ours[-1][1].strip())
        assert isinstance(raised, TidemarkError)
        return raised
    if _TIME_RANGE.search(text):
        return TimeRangeError(
            "a record's timestamp does not fit Spark's Kafka source",
            expected=f"at most {LATEST_MS} ms before or after 1970",
            found="one further away",
            where=where,
            hint="Correct the producer, which writes another unit than milliseconds",
        )
    if lacking := executor_error(text, where):
        return lacking
    if code is not None and fails_on_a_row(error):
        return _transform_error(text, code, personal=personal)
    # The last one is the innermost cause. A time-out explains least.
    causes = _KAFKAS.findall(text)
    specific = [cause for cause in causes if cause[0] != "TimeoutException"] or causes
    for name, message in reversed(specific):
        for meaning in _MEANINGS:
            if name in meaning.names:
                detail = next((said for _, said in causes if said), message).strip()
                found = f"{name.removesuffix('Exception')} ({MASK if personal else detail})"
                return meaning.kind(meaning.problem, found=found, where=where, hint=meaning.hint)
    cause = _cause(text, personal=personal) or type(error).__name__
    if unread := _UNREAD_FILE.search(text):
        return _unread(unread[1], cause)
    return ServiceError("a Spark job failed", found=cause, where=where)


def _unread(file: str, cause: str) -> TidemarkError:
    if not _DAMAGE.search(cause):
        return ServiceError("Spark could not read a file", found=cause, where=file)
    return FormatError(
        "a file is damaged",
        expected="Parquet as it was written",
        found=cause,
        where=file,
        hint=WITHOUT_OBJECT,
        objects=(unquote(urlsplit(file).path.removeprefix("/")),),  # Spark names files by their URI
    )


def _said(error: Exception) -> str:
    """Spark's text without the state of a streaming query, whose plan has the constants of our own expressions."""
    return str(error).partition("=== Streaming Query ===")[0]


def fails_on_a_row(error: Exception) -> bool:
    """Whether Spark's error is of a row's value or of a function of the user: not of the machine, a file or ours."""
    text = _said(error)
    if _OURS.search(text) or _UNREAD_FILE.search(text):
        return False
    return bool(_OF_ROWS.search(text)) and not _OF_MACHINE.match(cause_line(text))


def _transform_error(text: str, code: Path, *, personal: bool) -> TransformError:
    places = [int(line) for file, line in (*_CALLED_FROM.findall(text), *_FRAME.findall(text)) if file == str(code)]
    return TransformError(
        "the transformation fails on a record",
        expected="a row, or a reason in column 'reject'",
        found=_SETTINGS.sub("", _cause(text, personal=personal)),
        # The last frame is the innermost one.
        where=f"{code}, line {places[-1]}" if places else str(code),
        hint="Return null instead of failing (try_cast, try_divide, …), and set a reason: the record then goes to the"
        " dead-letter topic and the quarantine. Start again afterwards: nothing is lost",
    )


def rebuild_error(error: Exception, *, archive: str, code: Path, personal: bool) -> TidemarkError:
    """Why Spark could not transform archived rows: an error in the ``code``, or what ``task_error`` finds."""
    text = _said(error)
    if isinstance(error, AnalysisException) and not (_OURS.search(text) or _UNREAD_FILE.search(text)):
        hint = "If it is about the transformation, run 'tidemark streams' to test it"
        return ConfigError(
            "Spark refuses a query of the rebuild", found=_cause(text, personal=personal), where=archive, hint=hint
        )
    return task_error(error, where=archive, code=code, personal=personal)


def _cause(text: str, *, personal: bool) -> str:
    return masked_cause(cause_line(text)) if personal else cause_line(text)


def cause_line(text: str) -> str:
    """The most specific line of a stack trace.

    That is what Python raised in a worker, else Java's last "Caused by", else the cause of a lost task, else the first.
    """
    if raised := _RAISED.findall(text):
        return str(raised[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    return _QUERY.sub("", (causes or _LOST_TASK.findall(text) or lines[:1] or [""])[-1])
