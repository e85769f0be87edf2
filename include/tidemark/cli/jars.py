"""``tidemark jars``: the jars that Spark loads."""

from dataclasses import dataclass

from rich.console import Console

from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain
from tidemark.installation import JAR_LISTS, JARS, PROJECT
from tidemark.spark.jars import OF_SPARK, SETS, JarLists, ensure_jars


@dataclass(frozen=True, slots=True, kw_only=True)
class JarsResult:
    """Where the jars are: a folder for each set.

    - folder: the folder of the sets.
    - sets: the sets that are there now.
    - jars: how many jars they have.
    """

    folder: str
    sets: tuple[str, ...]
    jars: int


def fetch_jars(*, everything: bool, as_json: bool) -> None:
    """Fetch what is missing, and print where the jars are. Raises ServiceError if one can't be had."""
    found = _ensure(SETS if everything else OF_SPARK)
    if as_json:
        print_result("jars", found)
    else:
        open_console().print(plain(f"{found.jars} jars in {found.folder}, as locked"))


def ensure_spark_jars() -> None:
    """Fetch what is missing of the jars that Spark loads. Raises ServiceError if one can't be had."""
    _ensure(OF_SPARK)


def _ensure(sets: tuple[str, ...]) -> JarsResult:
    progress = Console(stderr=True, soft_wrap=True)
    folder = PROJECT / JARS
    number = ensure_jars(folder, JarLists(lists=JAR_LISTS), sets, lambda text: progress.print(plain(text)))
    return JarsResult(folder=str(folder), sets=sets, jars=number)
