"""The versions of Python that this machine has."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import setup_python


def interpreter(version: str) -> str:
    """A Python of this version, such as 3.12: our own, or from the PATH or pyenv. Skips the test by name if there is
    none."""
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    of_pyenv = map(str, sorted(pyenv.glob(f"versions/{version}.*/bin")))
    for folder in (*os.get_exec_path(), *of_pyenv):
        found = shutil.which(f"python{version}", path=folder)
        if found:
            try:
                setup_python.version_of(found)
            except setup_python.SetupError:  # pyenv's own command, if another version is selected
                continue
            return found
    pytest.skip(f"this machine has no Python {version}")
