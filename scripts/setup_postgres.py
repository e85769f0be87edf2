"""Finds PostgreSQL's server, which the tests of catalogs need, or installs it from Debian. Standard library only."""

import shutil
import sys
from pathlib import Path

import setup_packages

PACKAGES = ("postgresql",)
# Debian keeps each version's programs in a folder of its own, and not on the PATH.
FOLDERS = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of ``initdb`` and ``postgres``: Debian's newest version, or that of the PATH; None without any."""
    found = sorted(FOLDERS.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    other = shutil.which("initdb")
    return Path(other).parent if other else None


def install() -> Path:
    """The folder of the programs, after an installation if they are missing. Raises PackageError."""
    folder = programs()
    if folder is None:
        setup_packages.install(PACKAGES, "PostgreSQL's server")
        folder = programs()
    if folder is None:
        raise setup_packages.PackageError(f"PostgreSQL was installed, but there is no initdb below {FOLDERS}.")
    return folder


if __name__ == "__main__":
    try:
        install()
    except setup_packages.PackageError as error:
        sys.exit(str(error))
