"""Creates the virtual environment .venv: exactly the locked packages, checked by their hashes, and Tidemark itself.

Any Python 3.9 or later runs it, with the standard library only. Another run is quick, and repairs differences. With the
argument ``spark`` or ``airflow``, only the packages that this image needs at run time are installed. With
``choose``, it only says which Python .venv has or gets.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import setup_packages

VENV = Path(".venv")
# Changes with .venv's Python, so that make installs again.
CHOICE = Path(".tidemark") / "python.txt"
# The versions that the lock is for, in the order in which they are searched for.
SUPPORTED = ("3.11", "3.12", "3.13")
# In requirements.in, the packages after this line are for tests and the documentation.
DEVELOPMENT = "# The documentation's site"
EXPECTED = f"Python {', '.join(SUPPORTED[:-1])} or {SUPPORTED[-1]}"
ROLES = ("spark", "airflow")
# What only Airflow's image needs.
_OF_AIRFLOW = ("apache-airflow", "asyncpg")


class SetupError(Exception):
    """One sentence for the person who runs the setup."""


def locked(requirements: str, package: str) -> str:
    """The lock's entries of one package, with their hashes: one, unless versions of Python need different ones."""
    entries = re.findall(rf"(?m)^{re.escape(package)}==.*(?:\n    --hash.*)*", requirements)
    if not entries:
        raise SetupError(f"requirements.txt does not pin {package}; run 'make lock'.")
    return "".join(f"{entry}\n" for entry in entries)


def of_role(requirements: str, wanted: str, role: str) -> str:
    """The lock's entries that an image needs. ``wanted`` is the text of requirements.in.

    The lock says of each package who asked for it: the file or other packages.
    """
    if role not in ROLES:
        raise SetupError(f"there is no image '{role}'; expected one of: {', '.join(ROLES)}.")
    names = re.findall(r"(?m)^[\w-]+", wanted.partition(DEVELOPMENT)[0])
    needed = {name for name in names if role == "airflow" or not name.startswith(_OF_AIRFLOW)}
    entries = re.findall(r"(?m)^(([\w-]+)==.*(?:\n    .*)*)", requirements)
    asked_by = [(name, set(re.findall(r"(?m)^    #(?: via|  ) ([\w-]+)", text))) for text, name in entries]
    size = 0
    while len(needed) != size:
        size = len(needed)
        needed |= {name for name, askers in asked_by if askers & needed}
    return "".join(f"{text}\n" for text, name in entries if name in needed)


def version_of(python: str, needs: str = "sys") -> str:
    """The version of a Python that can import ``needs``, such as 3.12.1. Raises SetupError if it does not run."""
    program = f"import sys, {needs}; print('{{}}.{{}}.{{}}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SetupError(f"{python} does not run: {error.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise SetupError(f"{python} does not run: {said.splitlines()[0]}")
    return done.stdout.strip()


def require_supported(python: str, version: str) -> None:
    """Raises SetupError unless the lock is for this version."""
    if version.rpartition(".")[0] not in SUPPORTED:
        raise SetupError(f"{python} is Python {version}, which is not {EXPECTED}")


def find_python() -> str:
    """The first supported Python: the one that runs this, ``python3``, or one with its version in its name.

    Every folder of the PATH is searched, because a version manager's command may exist and still not run. Says which
    are passed over, and why. Raises SetupError if there is none.
    """
    names = ("python3", *(f"python{version}" for version in SUPPORTED))
    on_path = [found for name in names for folder in os.get_exec_path() if (found := shutil.which(name, path=folder))]
    passed_over = []
    for python in dict.fromkeys([sys.executable, *on_path]):
        try:
            require_supported(python, version_of(python))
        except SetupError as reason:
            passed_over.append(str(reason))
            continue
        print("".join(f"Passed over: {line}.\n" for line in passed_over), end="")
        return python
    raise SetupError(
        f"Tidemark needs {EXPECTED}, and there is none: {'; '.join(passed_over)}. "
        f"Install one, or name one: make install PYTHON=/path/to/python{SUPPORTED[0]}"
    )


def ensure_venv() -> str:
    """A .venv of the wanted Python: that of the variable PYTHON, or else .venv's own, or else one that is found.

    A .venv that does not work is replaced: an attempt may have been interrupted, or its Python removed. Gives the
    version that it has now.
    """
    asked = os.environ.get("PYTHON")
    wanted = None
    if asked:
        asked = shutil.which(asked) or asked
        wanted = version_of(asked)
        require_supported(f"PYTHON={asked}", wanted)
    try:
        version = version_of(str(VENV / "bin" / "python"), "pip")
        require_supported(str(VENV), version)
        if wanted is None or wanted.rpartition(".")[0] == version.rpartition(".")[0]:
            return version
        print(f"Replacing .venv: it has Python {version}, and PYTHON={asked} is {wanted}.")
    except SetupError as reason:
        if VENV.exists():
            print(f"Replacing .venv: {reason}.")
    make_venv(asked or find_python())
    return version_of(str(VENV / "bin" / "python"), "pip")


def make_venv(python: str) -> None:
    """Create .venv. Debian's package for it is installed first if it is missing."""
    if subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode != 0:
        setup_packages.install(["python3-venv"], "Python's venv module")
    subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)


def choose() -> None:
    """Say which Python .venv has, after creating it if need be. What was chosen is written for make if it changed."""
    version = ensure_venv()
    print(f"Python {version}")
    chosen = f"{version} {(VENV / 'pyvenv.cfg').stat().st_mtime_ns}\n"
    if not CHOICE.exists() or CHOICE.read_text(encoding="utf-8") != chosen:
        CHOICE.parent.mkdir(exist_ok=True)
        CHOICE.write_text(chosen, encoding="utf-8")


def main(role: str | None) -> None:
    """Install the locked packages, or those of an image, into .venv."""
    ensure_venv()
    python = VENV / "bin" / "python"
    uv = VENV / "bin" / "uv"
    requirements = Path("requirements.txt").read_text(encoding="utf-8")
    pin = locked(requirements, "uv")
    bootstrap = VENV / "uv.txt"
    bootstrap.write_text(pin, encoding="utf-8")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", bootstrap],
        check=True,
    )
    target = ["--python", str(python)]
    chosen = VENV / "requirements.txt"
    wanted = Path("requirements.in").read_text(encoding="utf-8")
    chosen.write_text(requirements if role is None else of_role(requirements, wanted, role), encoding="utf-8")
    print("Installing the locked Python packages (about 500 MB, half a minute) ...", flush=True)
    subprocess.run([uv, "pip", "sync", "--quiet", *target, "--require-hashes", chosen], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", *target, "--no-deps", "--no-build-isolation", "-e", "."], check=True
    )


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["choose"]:
            choose()
        else:
            main(sys.argv[1] if len(sys.argv) > 1 else None)
    except (SetupError, setup_packages.PackageError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The setup of Python failed: {error}")
