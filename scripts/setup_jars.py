"""Fetches the jars of jars/ivy.xml into .tidemark/jars/{spark,kafka,s3,catalog}, checked against jars/SHA256SUMS.

Ivy comes with PySpark and runs with its defaults and cache. ``--lock`` resolves the jars and rewrites the sums.
Standard library only.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import setup_java
import setup_packages

IVY_FILE = Path("jars/ivy.xml")
SUMS_FILE = Path("jars/SHA256SUMS")
FOLDER = Path(".tidemark/jars")


class JarError(Exception):
    """One sentence about a wrong jar."""


def read_sums(text: str) -> dict[str, str]:
    """Parse lines in ``sha256sum``'s format to ``{"spark/some.jar": "<hex>"}``."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in text.splitlines())}


def sums_text(sums: Mapping[str, str]) -> str:
    """Lines in ``sha256sum``'s format, sorted by name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def folder_sums(folder: Path) -> dict[str, str]:
    """The sums of the jars in the folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*/*.jar"))
    }


def difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    """One sentence about the first jar that is missing, not listed, or has another sum; None if all are right."""
    for name in sorted({*found, *expected}):
        if name not in found:
            return f"{name} is missing: expected SHA-256 {expected[name]}, found no such file."
        if name not in expected:
            return f"{name} is not listed in {SUMS_FILE}: expected no such file, found SHA-256 {found[name]}."
        if found[name] != expected[name]:
            return f"{name} is not the locked file: expected SHA-256 {expected[name]}, found {found[name]}."
    return None


def resolve(folder: Path) -> None:
    """Let Ivy fetch every jar into ``folder/<set>``. Raises JarError with Ivy's message if it fails."""
    ivy = next(Path(".venv").glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"), None)
    if ivy is None:
        raise JarError("PySpark's Ivy is missing from .venv; remove .venv and run 'make install' again.")
    java = setup_java.java_command() or "java"
    pattern = f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    print(
        "Fetching the jars of Spark, Kafka, the S3 server and the REST catalog (about 200 MB, a minute or two) ...",
        flush=True,
    )
    arguments = [java, "-jar", str(ivy), "-warn", "-ivy", str(IVY_FILE), "-retrieve", pattern]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    # Ivy may exit with 0 although artefacts failed, so the sums decide.
    if done.returncode != 0:
        raise JarError(complaint(done.stdout))


def complaint(output: str) -> str:
    """Ivy's message in one sentence: the number of missing jars, the first of them, and the first cause."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    absent = [line for line in lines if line.endswith("not found")]
    causes = [line for line in lines if "Exception" in line or ("error" in line.lower() and line != "ERRORS")]
    count = f"{len(absent)} jars are missing, the first is {absent[0].removesuffix(': not found')}. " if absent else ""
    cause = causes[0] if causes else " ".join(filter(None, lines)) if not absent else "Ivy gives no cause."
    return f"Ivy could not fetch the jars. {count}{cause}"


def main(arguments: list[str]) -> None:
    """Fetch the locked jars, or with ``--lock`` write a new lock."""
    if arguments not in ([], ["--lock"]):
        raise JarError(f"setup_jars.py only has the option --lock, found {' '.join(arguments)}.")
    lock = arguments == ["--lock"]
    expected = {} if lock else read_sums(SUMS_FILE.read_text(encoding="utf-8"))
    if not lock:
        problem = difference(folder_sums(FOLDER), expected)
        if problem is None:
            return
        if any(FOLDER.glob("*/*.jar")):
            print(f"Replacing the jars in {FOLDER}: {problem}", flush=True)
    fresh = FOLDER.with_name("jars.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    resolve(fresh)
    found = folder_sums(fresh)
    if lock:
        SUMS_FILE.write_text(sums_text(found), encoding="utf-8")
    elif problem := difference(found, expected):
        raise JarError(f"{problem} If Ivy's cache is damaged, remove ~/.ivy2/cache and try again.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    fresh.rename(FOLDER)
    print(f"{len(found)} jars, every SHA-256 sum as locked.", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (JarError, setup_java.JavaError, setup_packages.PackageError) as error:
        sys.exit(str(error))
