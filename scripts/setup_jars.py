"""Fetches the jars of jars/ivy.xml into .tidemark/jars/{spark,kafka,s3,catalog}, checked against jars/SHA256SUMS.

``--lock`` resolves the jars and rewrites the sums. It runs in .venv.
"""

import shutil
import sys
from pathlib import Path

from tidemark.core.errors import TidemarkError
from tidemark.spark.jars import SETS, JarLists, ensure_jars, resolve, sums_text

LISTS = JarLists(lists=Path("jars"))
FOLDER = Path(".tidemark/jars")


def main(arguments: list[str]) -> None:
    """Fetch the locked jars, or with ``--lock`` write a new lock."""
    if arguments == ["--lock"]:
        fresh = FOLDER.with_name("jars.new")
        LISTS.sums_file.write_text(sums_text(resolve(fresh, LISTS)), encoding="utf-8")
        shutil.rmtree(fresh)
    elif arguments:
        sys.exit(f"setup_jars.py only has the option --lock, found {' '.join(arguments)}.")
    ensure_jars(FOLDER, LISTS, SETS, lambda text: print(text, flush=True))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except TidemarkError as error:
        sys.exit(str(error))
