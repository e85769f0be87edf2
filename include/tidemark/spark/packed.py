"""Folders as zips, which travel with an application. Airflow imports this, so it needs no Spark."""

from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

PACKAGE = "tidemark/**/*"


def packed(path: Path, folder: Path, pattern: str) -> Path:
    """Write a zip of the folder's files that match, without compiled ones, and return its path."""
    with ZipFile(path, "w", ZIP_DEFLATED) as target:
        for file in sorted(folder.glob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                target.write(file, file.relative_to(folder))
    return path
