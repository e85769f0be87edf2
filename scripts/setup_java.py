"""Finds Java 17 or 21, which Spark 4 and Kafka 4 need, or installs it from Debian. Standard library only."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import setup_packages

SUPPORTED = (17, 21)
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


class JavaError(Exception):
    """One sentence about the Java that was found."""


def parse_version(text: str) -> int | None:
    """The major version in the output of ``java -version``, such as 17, or 8 for ``1.8.0_392``; None without one."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def java_command() -> str | None:
    """The Java that Spark and the local stack use: JAVA_HOME's, or else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home, "bin", "java")
        if not command.exists():
            raise JavaError(
                f"JAVA_HOME is {home}, and there is no bin/java in it; set it to a Java 17 or 21, or unset it."
            )
        return str(command)
    return shutil.which("java")


def check(command: str) -> int:
    """The version of this Java. Raises JavaError if it is not supported."""
    done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    printed = done.stderr + done.stdout
    version = parse_version(printed)
    if version not in SUPPORTED:
        found = printed.strip().splitlines()[0] if printed.strip() else f"nothing (exit code {done.returncode})"
        raise JavaError(
            f"Tidemark needs Java 17 or 21, and {command} says: {found}; install the package {PACKAGES[0]} "
            "and set JAVA_HOME to it."
        )
    return version


def main() -> None:
    """Find a supported Java, or install one."""
    command = java_command()
    if command is None:
        setup_packages.install(PACKAGES, "Java 17 or 21")
        command = java_command()
    if command is None:
        raise JavaError(f"Java was installed, but there is no 'java' on the PATH; reinstall {PACKAGES[0]}.")
    check(command)


if __name__ == "__main__":
    try:
        main()
    except (JavaError, setup_packages.PackageError) as error:
        sys.exit(str(error))
