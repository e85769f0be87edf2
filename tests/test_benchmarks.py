"""Each benchmark, with sizes so small that it ends in a minute or two: it still runs, and no figure is zero."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark.installation import PROJECT

pytestmark = [pytest.mark.services, pytest.mark.timeout(1800)]
SIZES = {
    "archive": ("--records", "4000", "--runs", "1"),
    "audit": ("--records", "4000", "--runs", "1"),
    "certificate": ("--records", "100000"),
    "late_data": ("--minutes", "0.5"),
    "pages": ("--streams", "2", "--partitions", "2", "--days", "10", "--requests", "3"),
    "plan": ("--ranges", "1000", "--runs", "1"),
    "rebuild": ("--records", "200000", "--runs", "1"),
    "s3_requests": ("--cases", "p1", "--idle", "5", "--without-days"),
    "speed": ("--records", "4000", "--runs", "1", "--seconds", "5"),
}


def figures(found: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value, with the keys that lead to it."""
    if isinstance(found, dict):
        for key, item in found.items():
            yield from figures(item, f"{place}.{key}")
    elif isinstance(found, list):
        for number, item in enumerate(found):
            yield from figures(item, f"{place}[{number}]")
    else:
        yield place, float(found)


@pytest.mark.parametrize("name", SIZES)
def test_a_benchmark_ends_with_figures_of_which_none_is_zero(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", *SIZES[name]]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = dict(figures(json.loads(done.stdout.strip().splitlines()[-1])))
    assert found
    assert {place: figure for place, figure in found.items() if not figure > 0} == {}, found


def test_every_benchmark_of_the_makefile_is_among_them() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    assert sorted(re.findall(r"-m benchmarks\.(\w+)", makefile)) == sorted(SIZES)
