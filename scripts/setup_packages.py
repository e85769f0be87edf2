"""Installs Debian packages if allowed, or else names them in one sentence. Standard library only."""

import os
import shutil
import subprocess
from collections.abc import Sequence


class PackageError(Exception):
    """One sentence with the package that a person has to install."""


def install(choices: Sequence[str], what: str) -> str:
    """Install the first available package of ``choices``, print its name, and return it.

    Raises PackageError with the first choice if this is not Debian, or the installation is not allowed or fails.
    """
    missing = f"{what} is missing; install the package {choices[0]} (or what your system calls it) and try again."
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") is None or not _may(prefix):
        raise PackageError(missing)
    subprocess.run([*prefix, "apt-get", "update", "-qq"], check=False)
    for package in choices:
        if subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).returncode != 0:
            continue
        print(f"{what} is missing: installing Debian's package {package}.", flush=True)
        command = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq"]
        if subprocess.run([*command, "--no-install-recommends", package], check=False).returncode != 0:
            break
        return package
    raise PackageError(missing)


def _may(prefix: Sequence[str]) -> bool:
    """Whether commands after this prefix run without a password."""
    if not prefix:
        return True
    found = shutil.which(prefix[0]) is not None
    return found and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
