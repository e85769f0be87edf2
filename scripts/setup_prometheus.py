"""Finds Prometheus and promtool, which tests need, or installs them from Debian. Standard library only."""

import shutil
import sys

import setup_packages

PACKAGES = ("prometheus",)
PROGRAMS = ("prometheus", "promtool")


def installed() -> bool:
    """Whether both programs are on the PATH."""
    return all(shutil.which(name) for name in PROGRAMS)


def install() -> None:
    """Install the programs if one is missing. Raises PackageError."""
    if not installed():
        setup_packages.install(PACKAGES, "Prometheus")
    if not installed():
        raise setup_packages.PackageError(f"Prometheus was installed, but not {' and '.join(PROGRAMS)} on the PATH.")


if __name__ == "__main__":
    try:
        install()
    except setup_packages.PackageError as error:
        sys.exit(str(error))
