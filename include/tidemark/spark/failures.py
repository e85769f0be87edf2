"""What a failed Spark job means: one sentence out of pages of Java and Python, and what to do about it."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark.errors import AnalysisException

from tidemark.core import errors
from tidemark.core.errors import ConfigError, ConflictError, FormatError, ServiceError, TidemarkError

_OURS = re.compile(r"tidemark\.core\.errors\.(\w+): (.*)")
_KAFKAS = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)(?:: (.*))?")
# Spark writes the cause behind the job's own words: "… Lost task 0.0 in stage 1.0 (TID 1) (host executor 1): CAUSE".
_LOST_TASK = re.compile(r"Lost task .*?\(TID \d+\) \(.*?\): (.*)")
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\b.*?\] Encountered error while reading file (\S+?)\.\s")
# Of such a file the causes that lie in its bytes; others are S3's.
_DAMAGE = re.compile(r"^(org\.apache\.parquet|shaded\.parquet|com\.github\.luben\.zstd)\.|is not a Parquet file")
# SQL's data exceptions, keys given twice, functions that fail, limits of a value and raise_error; what Python raised.
_OF_ROWS = re.compile(r"SQLSTATE: (?:22|23|39|54|P0)\w{3}|\bPythonException\b|thrown from the Python worker")
# What Python raises for the machine's sake.
_OF_MACHINE = re.compile(
    r"(?:\w+\.)*\w*(?:(?:Memory|Import|ModuleNotFound|OS|IO|SSL|FileNotFound|Permission|BrokenPipe)Error"
    r"|(?:Connect|Timeout)\w*Error)\b|RuntimeError: can't start new thread"
)
# Behind the indented lines of the frames.
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
FAILS_ON_RECORD = "the transformation fails on a record"
WITHOUT_OBJECT = (
    "Put it back from a copy of the bucket. Only where Kafka still holds all that its manifest lists, and its writer is"
    " not 'compact': delete the manifest and its objects, make the ledger anew (tidemark maintain STREAM"
    " --rebuild-ledger) and start a new run, which refills the ranges"
)


@dataclass(frozen=True, slots=True)
class _Meaning:
    """Kafka's exceptions by their names, and what we say instead."""

    names: tuple[str, ...]
    kind: type[TidemarkError]
    problem: str
    hint: str


_AGAIN = "Nothing acknowledged is lost, and the next start repeats what failed"
_MEANINGS = (
    _Meaning(
        ("RecordTooLargeException", "RecordBatchTooLargeException"),
        ConfigError,
        "a record is larger than Kafka takes",
        "Raise max.message.bytes of the topic it goes to, then start again",
    ),
    _Meaning(
        ("TopicAuthorizationException", "ClusterAuthorizationException", "GroupAuthorizationException"),
        ServiceError,
        "Kafka does not allow it",
        "Grant the stream's user READ on the source, WRITE and DESCRIBE on its output topics (kafka-acls.sh), then"
        f" start again. {_AGAIN}",
    ),
    _Meaning(
        ("SaslAuthenticationException", "SslAuthenticationException"),
        ServiceError,
        "Kafka does not accept the stream's credentials",
        f"Correct them, then start again. {_AGAIN}",
    ),
    _Meaning(
        ("UnknownTopicOrPartitionException", "UnknownTopicIdException", "InvalidTopicException"),
        ServiceError,
        "Kafka has no such topic any more",
        f"Missing output topics are created at the next start. {_AGAIN}",
    ),
    _Meaning(
        ("InvalidRecordException", "InvalidTimestampException", "CorruptRecordException"),
        ConfigError,
        "Kafka refuses a record",
        "Look at the topic's cleanup.policy and message.timestamp settings: 'tidemark topics' names what is wrong",
    ),
    _Meaning(
        ("ProducerFencedException", "InvalidProducerEpochException", "FencedInstanceIdException"),
        ConflictError,
        "another producer took over",
        "Stop all but one of the applications that deliver this stream",
    ),
    _Meaning(
        ("NotEnoughReplicasException", "NotEnoughReplicasAfterAppendException", "TimeoutException"),
        ServiceError,
        "Kafka did not do it in time",
        "A broker is away, a partition has no leader, or fewer copies in sync than min.insync.replicas asks for: see"
        f" kafka-topics.sh --describe --unavailable-partitions, --under-min-isr-partitions. {_AGAIN}",
    ),
)


def task_error(error: Exception, *, where: str) -> TidemarkError:
    """The TidemarkError a task died of, found in Spark's account of it; Kafka's errors and any other, explained.

    ConfigError and ConflictError need somebody to act; a ServiceError may be over at the next start.
    """
    text = str(error)
    if ours := _OURS.findall(text):
        kind = getattr(errors, ours[-1][0], TidemarkError)
        told = kind(ours[-1][1].strip())
        assert isinstance(told, TidemarkError)
        return told
    # The last one named is the innermost cause; a time-out is the least telling of all.
    causes = _KAFKAS.findall(text)
    telling = [cause for cause in causes if cause[0] != "TimeoutException"] or causes
    for name, message in reversed(telling):
        for meaning in _MEANINGS:
            if name in meaning.names:
                detail = next((said for _, said in causes if said), message).strip()
                found = f"{name.removesuffix('Exception')} ({detail})"
                return meaning.kind(meaning.problem, found=found, where=where, hint=meaning.hint)
    cause = cause_line(text) or type(error).__name__
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


def rebuild_error(error: Exception, *, archive: str, code: str) -> TidemarkError:
    """Why Spark could not make rows of the archive's: a fault of the ``code``, or what ``task_error`` finds."""
    text = str(error)
    if _OURS.search(text) is None and _UNREAD_FILE.search(text) is None:
        if _lies_in_rows(text):
            return ConfigError(
                FAILS_ON_RECORD,
                expected="a row of it, or a reason in column 'reject'",
                found=cause_line(text),
                where=code,
                hint="Make what fails null (try_cast, try_divide, …) and give a reason: so the quarantine gets it",
            )
        if isinstance(error, AnalysisException):
            hint = "Where it is about the transformation, 'tidemark streams' tries that"
            return ConfigError("Spark refuses a query of the rebuild", found=cause_line(text), where=archive, hint=hint)
    return task_error(error, where=archive)


def _lies_in_rows(text: str) -> bool:
    """Whether a Spark job failed on a row's values or in a function of the user's, and not for a service."""
    return _OF_ROWS.search(text) is not None and _OF_MACHINE.match(cause_line(text)) is None


def cause_line(text: str) -> str:
    """The telling line of a stack trace: what Python raised in a worker, else Java's last "Caused by", else what a task
    was lost of, else the first."""
    if raised := _RAISED.findall(text):
        return str(raised[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by:").strip() for line in lines if line.startswith("Caused by:")]
    return (causes or _LOST_TASK.findall(text) or lines[:1] or [""])[-1]
