"""Creates the virtual environment .venv: exactly the locked packages, checked by their hashes, and Tidemark itself.

The system's Python runs it, with the standard library only. Another run is quick, and repairs differences.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import setup_packages

VENV = Path(".venv")
WANTED = (3, 11)


class SetupError(Exception):
    """One sentence for the person who runs the setup."""


def locked(requirements: str, package: str) -> str:
    """The lock's entry of one package, with its hashes."""
    entry = re.search(rf"(?m)^{re.escape(package)}==.*(?:\n    --hash.*)*", requirements)
    if entry is None:
        raise SetupError(f"requirements.txt does not pin {package}; run 'make lock'.")
    return entry[0].rstrip("\\ ") + "\n"


def python_command() -> str:
    """A Python of the version that the lock is for."""
    if sys.version_info[:2] == WANTED:
        return sys.executable
    name = "python{}.{}".format(*WANTED)
    found = shutil.which(name)
    if found is None:
        raise SetupError(
            "Tidemark needs Python {}.{}, and python3 is {}.{}; ".format(*WANTED, *sys.version_info[:2])
            + f"install it so that '{name}' is on the PATH."
        )
    return found


def works(python: Path) -> bool:
    """Whether the virtual environment works: an attempt may have been interrupted, or its Python removed."""
    try:
        return subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def make_venv(python: str) -> None:
    """Create .venv. Debian's package for it is installed first if it is missing."""
    if subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode != 0:
        setup_packages.install(["python3-venv"], "Python's venv module")
    subprocess.run([python, "-m", "venv", str(VENV)], check=True)


def main() -> None:
    """Install the locked packages into .venv."""
    python = VENV / "bin" / "python"
    if not works(python):
        make_venv(python_command())
    uv = VENV / "bin" / "uv"
    pin = locked(Path("requirements.txt").read_text(encoding="utf-8"), "uv")
    bootstrap = VENV / "uv.txt"
    bootstrap.write_text(pin, encoding="utf-8")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", bootstrap],
        check=True,
    )
    target = ["--python", str(python)]
    print("Installing the locked Python packages (about 500 MB, half a minute) ...", flush=True)
    subprocess.run([uv, "pip", "sync", "--quiet", *target, "--require-hashes", "requirements.txt"], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", *target, "--no-deps", "--no-build-isolation", "-e", "."], check=True
    )


if __name__ == "__main__":
    try:
        main()
    except (SetupError, setup_packages.PackageError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"The setup of Python failed: {error}")
