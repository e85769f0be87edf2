"""Finds Chromium, in which tests read Tidemark's pages, or installs it from Debian. Standard library only."""

import shutil
import sys
from pathlib import Path

import setup_packages

PACKAGES = ("chromium",)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program() -> Path | None:
    """The browser on the PATH; None without any."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    return Path(found) if found else None


def install() -> Path:
    """The browser, after an installation if it is missing. Raises PackageError."""
    found = program()
    if found is None:
        setup_packages.install(PACKAGES, "Chromium")
        found = program()
    if found is None:
        raise setup_packages.PackageError(f"Chromium was installed, but none of {', '.join(PROGRAMS)} is on the PATH.")
    return found


if __name__ == "__main__":
    try:
        install()
    except setup_packages.PackageError as error:
        sys.exit(str(error))
