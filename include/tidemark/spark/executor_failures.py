"""Explain what executors of a Spark cluster lack: their Python, its packages, memory. Local ones have the driver's."""

import re
import sys

from tidemark.core.errors import ConfigError, ServiceError, TidemarkError

PAGE = "docs/how-to/use-a-spark-cluster.md"
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)": (?:error=\d+, )?(.*)')
_NO_PACKAGE = re.compile(r"^(?:ModuleNotFoundError|ImportError): (No module named '([\w.]+)'.*)$", re.MULTILINE)
_OTHER_VERSION = re.compile(r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: (\S+) than")
# Only a task that ended its executor is blamed for it. Spark's own exit codes: 52 and 53 for memory, 137 for SIGKILL.
_LOST = re.compile(r"ExecutorLostFailure \(executor \S+ exited [^)]*\)(?: Reason: (.*))?")
_KILLED_FOR_MEMORY = re.compile(r"(?:code|status):? (?:52|53|137)\b|OOM|memory limits")
_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError.*")
_PYTHON_ENDED = re.compile(r"Python worker exited unexpectedly|^MemoryError\b", re.MULTILINE)
_RESTART = "Then restart: nothing acknowledged is lost"


def executor_error(text: str, where: str) -> TidemarkError | None:
    """The error for Spark's text of a failed job, if the executors are its cause."""
    if found := _NO_PYTHON.search(text):
        return ConfigError(
            "no such Python on the executors",
            expected="a Python that the executors' user can run",
            found=f"{found[1]}: {found[2].strip()}",
            where=where,
            hint=f"Set spark.executor_python to its path on the executors, see {PAGE}. {_RESTART}",
        )
    if found := _OTHER_VERSION.search(text):
        return ConfigError(
            "the executors' Python has another version",
            expected="{}.{}, as the driver has".format(*sys.version_info),
            found=found[1],
            where=where,
            hint=f"Set spark.executor_python to one of that version, see {PAGE}. {_RESTART}",
        )
    if packages := _NO_PACKAGE.findall(text):
        said, name = packages[-1]
        return ConfigError(
            "the executors' Python lacks a package",
            expected=name,
            found=said,
            where=where,
            hint=f"Install requirements-executors.txt, and what transformations import, see {PAGE}. {_RESTART}",
        )
    return _memory(text, where) or _lost(text, where)


def _memory(text: str, where: str) -> TidemarkError | None:
    reasons = [reason for reason in _LOST.findall(text) if _KILLED_FOR_MEMORY.search(reason)]
    found = _OUT_OF_MEMORY.findall(text) or reasons
    if not found:
        return None
    # A local application is its own executor, named "driver".
    if "Lost task" in text and "executor driver)" not in text:
        hint = f"Raise spark.executor_memory, or lower spark.executor_cores. {_RESTART}"
        return ConfigError("an executor ran out of memory", found=found[-1].strip(), where=where, hint=hint)
    hint = f"Raise spark.driver_memory. {_RESTART}"
    return ConfigError("Spark's driver ran out of memory", found=found[-1].strip(), where=where, hint=hint)


def _lost(text: str, where: str) -> TidemarkError | None:
    if reasons := _LOST.findall(text):
        said = reasons[-1].strip()
        hint = f"See the executor's log on its worker. {_RESTART}"
        return ServiceError("executors were lost repeatedly", found=said, where=where, hint=hint)
    if _PYTHON_ENDED.search(text):
        return ServiceError(
            "Python on an executor was ended",
            expected="a result of its task",
            found="it exited, or had no memory",
            where=where,
            hint="The machine may lack memory beside spark.executor_memory: lower it, or spark.executor_cores, or give"
            f" the machine more. {_RESTART}",
        )
    return None
