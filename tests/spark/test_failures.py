"""An error of a transformation is recognised in Spark's text, with the line of the user's file."""

from pathlib import Path

import pytest

from tidemark.core.errors import ConfigError, ServiceError, TidemarkError, TransformError
from tidemark.spark.failures import task_error

CODE = Path("/etc/streams/rides.py")
LOST_TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 1.0 (TID 1) (localhost executor driver): {}
\tat org.apache.spark.scheduler.Task.run(Task.scala:147)

Driver stacktrace:"""
DIVISION = """org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012
== DataFrame ==
"divide" was called from
/etc/streams/rides.py:17
"""
FUNCTION = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/usr/lib/pyspark/worker.py", line 1200, in main
    process()
  File "/etc/streams/rides.py", line 4, in outer
    return inner(fare)
  File "/etc/streams/rides.py", line 9, in inner
    return 1 / fare
ZeroDivisionError: division by zero
"""
IN_SQL = """org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012
== SQL (line 1, position 1) ==
fare / rides
^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("cause", "where", "found"),
    [
        (DIVISION, "/etc/streams/rides.py, line 17", "[DIVIDE_BY_ZERO] Division by zero."),
        (FUNCTION, "/etc/streams/rides.py, line 9", "ZeroDivisionError: division by zero"),
        (IN_SQL, "/etc/streams/rides.py", "[DIVIDE_BY_ZERO] Division by zero."),
        (DIVISION.replace("rides.py", "library.py"), "/etc/streams/rides.py", "[DIVIDE_BY_ZERO] Division by zero."),
    ],
)
def test_an_error_of_a_row_names_the_line_of_the_transformation(cause: str, where: str, found: str) -> None:
    error = task_error(RuntimeError(LOST_TASK.format(cause)), where="stream rides", personal=False, code=CODE)
    assert type(error) is TransformError
    assert error.where == where
    assert found in str(error.found)
    assert "Return null instead of failing" in str(error.hint)
    placed = error.of("topic rides, partition 2, offset 7")
    assert str(placed) == str(error).replace("found ", "found topic rides, partition 2, offset 7: ", 1)
    assert isinstance(placed, TransformError)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (FUNCTION.replace("ZeroDivisionError", "MemoryError"), ServiceError),
        ("tidemark.core.errors.ConfigError: speed.key names no plain column SQLSTATE: 22012", ConfigError),
        ("java.lang.IllegalStateException: odd", ServiceError),
    ],
)
def test_other_errors_are_not_blamed_on_the_transformation(cause: str, kind: type[TidemarkError]) -> None:
    assert (
        type(task_error(RuntimeError(LOST_TASK.format(cause)), where="stream rides", personal=False, code=CODE)) is kind
    )


def test_a_streams_plan_in_the_text_is_not_searched_and_only_the_cause_is_quoted() -> None:
    cause = DIVISION.partition(": ")[2].replace(
        "zero.", 'zero. If necessary set "a.b" to "false" to bypass this error.'
    )
    text = f"[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: {cause}=== Streaming Query ===\n"
    error = task_error(
        RuntimeError(f"{text}Project [raise_error(no such zone)]"),
        where="stream rides",
        personal=False,
        code=CODE,
    )
    assert type(error) is TransformError
    assert error.found == "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"


def test_rows_that_no_transformation_made_are_not_blamed_on_one() -> None:
    assert (
        type(task_error(RuntimeError(LOST_TASK.format(DIVISION)), where="archive of rides", personal=False))
        is ServiceError
    )
