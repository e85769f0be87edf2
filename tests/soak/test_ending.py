"""What the soak takes for an explained ending."""

import pytest

from tests.soak.world import ending

EVENT = '{"event": "batch", "batch": 1}'
LATE = "26/11/28 09:30:17 WARN PythonUDFRunner: Incomplete task 1.0 in stage 2 (TID 9) interrupted"
ERROR = "ServiceError: Spark's JVM died: found [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ([EVENT, ERROR], ERROR),
        ([EVENT, ERROR, LATE], ERROR),
        ([ERROR], ERROR),
        ([EVENT, LATE], None),
        ([ERROR, EVENT, LATE], None),
        ([EVENT, "Traceback (most recent call last):", "KeyError: 'offsets'"], None),
        ([EVENT, ERROR, "Traceback (most recent call last):", "KeyError: 'offsets'"], None),
        ([EVENT, "java.lang.OutOfMemoryError: Java heap space"], None),
        ([], None),
    ],
)
def test_an_ending_is_explained_by_an_error_of_tidemark_after_the_last_event(
    lines: list[str], error: str | None
) -> None:
    assert ending("\n".join(lines)) == (error, lines[-1] if lines else "")
