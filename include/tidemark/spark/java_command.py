"""The Java command of this machine. Airflow imports this, so it needs no Spark."""

import os
import shutil
from pathlib import Path

from tidemark.core.errors import StackError


def java_command() -> str:
    """``$JAVA_HOME/bin/java`` or the one on PATH, in Spark's order. Raises StackError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not Path(found).exists():
        raise StackError("no Java", found=found, hint="Run 'make install', or install Java 17 or 21")
    return found
