"""Fetches the jars that Spark and a local stack load, from Maven Central, checked by their SHA-256 sums.

Ivy, which comes with PySpark, fetches them with its own settings and cache. Only Java has to be there before.
"""

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tidemark.core.errors import ConfigError, ServiceError
from tidemark.spark.java_command import java_command

SETS = ("spark", "kafka", "s3", "catalog")
OF_SPARK = SETS[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class JarLists:
    """The list of the jars, and the list of their sums, in the folder ``lists``."""

    lists: Path

    @property
    def ivy_file(self) -> Path:
        return self.lists / "ivy.xml"

    @property
    def sums_file(self) -> Path:
        return self.lists / "SHA256SUMS"

    def sums(self, sets: Sequence[str] = SETS) -> dict[str, str]:
        """The locked sums of these sets' jars."""
        return {
            name: digest
            for name, digest in read_sums(self.sums_file.read_text(encoding="utf-8")).items()
            if name.partition("/")[0] in sets
        }


def read_sums(text: str) -> dict[str, str]:
    """Parse lines in ``sha256sum``'s format to ``{"spark/some.jar": "<hex>"}``."""
    return {name: digest for digest, name in (line.split("  ", 1) for line in text.splitlines())}


def sums_text(sums: Mapping[str, str]) -> str:
    """Lines in ``sha256sum``'s format, sorted by name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def folder_sums(folder: Path, sets: Sequence[str] = SETS) -> dict[str, str]:
    """The sums of the sets' jars in the folder."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for kind in sets
        for path in sorted(folder.glob(f"{kind}/*.jar"))
    }


def difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str | None:
    """One sentence about the first jar that is missing, not listed, or has another sum; None if all are right."""
    for name in sorted({*found, *expected}):
        if name not in found:
            return f"{name} is missing: expected SHA-256 {expected[name]}, found no such file."
        if name not in expected:
            return f"{name} is not listed in SHA256SUMS: expected no such file, found SHA-256 {found[name]}."
        if found[name] != expected[name]:
            return f"{name} is not the locked file: expected SHA-256 {expected[name]}, found {found[name]}."
    return None


def ensure_jars(folder: Path, lists: JarLists, sets: Sequence[str], say: Callable[[str], object]) -> int:
    """Fetch the sets' locked jars into ``folder/<set>``, unless they are there. Return how many jars there are.

    Raises ServiceError if a jar can't be fetched or is not the locked one. Earlier jars stay then.
    """
    expected = lists.sums(sets)
    problem = difference(folder_sums(folder, sets), expected)
    if problem is None:
        return len(expected)
    if any(folder.glob("*/*.jar")):
        say(f"Replacing the jars in {folder}: {problem}")
    require_ivy()
    say(f"Fetching {len(expected)} jars ({', '.join(sets)}) from Maven Central, a minute or two ...")
    fresh = folder.with_name(f"{folder.name}.new")
    found = resolve(fresh, lists, sets)
    if problem := difference(found, expected):
        raise ServiceError(problem.rstrip("."), hint="If Ivy's cache is damaged, remove ~/.ivy2/cache and try again")
    folder.mkdir(parents=True, exist_ok=True)
    for kind in sets:
        shutil.rmtree(folder / kind, ignore_errors=True)
        (fresh / kind).mkdir(exist_ok=True)
        (fresh / kind).rename(folder / kind)
    shutil.rmtree(fresh)
    return len(found)


def resolve(folder: Path, lists: JarLists, sets: Sequence[str] = SETS) -> dict[str, str]:
    """Let Ivy fetch the jars into the empty ``folder/<set>``, and return their sums.

    Raises ServiceError with Ivy's message if it fails, and ConfigError if there is no Ivy.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pattern = f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command = [java_command(), "-jar", str(require_ivy()), "-warn", "-ivy", str(lists.ivy_file)]
    command += ["-confs", *sets, "-retrieve", pattern]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    # Ivy may exit with 0 although artefacts failed, so the sums decide.
    if done.returncode != 0:
        raise ServiceError(complaint(done.stdout))
    return folder_sums(folder)


def complaint(output: str) -> str:
    """Ivy's message in one sentence: the number of missing jars, the first of them, and the first cause."""
    lines = [line.strip(" \t:") for line in output.splitlines()]
    absent = [line for line in lines if line.endswith("not found")]
    causes = [line for line in lines if "Exception" in line or ("error" in line.lower() and line != "ERRORS")]
    count = f"{len(absent)} jars are missing, the first is {absent[0].removesuffix(': not found')}. " if absent else ""
    cause = causes[0] if causes else " ".join(filter(None, lines)) if not absent else "Ivy gives no cause."
    return f"Ivy could not fetch the jars. {count}{cause}"


def require_ivy() -> Path:
    """The jar of Ivy. Raises ConfigError if PySpark is not installed, or only its client."""
    spec = find_spec("pyspark")
    places = (spec and spec.submodule_search_locations) or ()
    ivy = next((jar for place in places for jar in Path(place).glob("jars/ivy-*.jar")), None)
    if ivy is None:
        raise ConfigError(
            "no Ivy", expected="the package pyspark, not only pyspark-client", hint="Run: pip install 'tidemark[spark]'"
        )
    return ivy
