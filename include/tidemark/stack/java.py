"""The command line of a main class in a folder of jars."""

import os
from collections.abc import Sequence
from pathlib import Path

from tidemark.core.errors import StackError
from tidemark.installation import GET_ALL_JARS
from tidemark.spark.java_command import java_command

# For Spark applications that run for about a minute: optimised code would not pay off. Without its compiler, Java would
# reserve only 48 MB for code, of which Spark needs more: it would remove and compile methods all the time.
BRIEF_JVM = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"}


def java_argv(
    jars: Path, main: str, *arguments: str, heap: str, properties: dict[str, str], more: Sequence[Path] = ()
) -> list[str]:
    """The command that runs a main class from a folder of jars, and ``more`` of the class path after them.

    ``heap`` is as for ``-Xmx``, e.g. ``512m``.
    """
    if not any(jars.glob("*.jar")):
        raise StackError("no jars", expected="*.jar", where=str(jars), hint=f"{GET_ALL_JARS} first")
    return [
        java_command(),
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        *(f"-D{key}={value}" for key, value in properties.items()),
        "-cp",
        os.pathsep.join(map(str, [jars / "*", *more])),
        main,
        *arguments,
    ]
