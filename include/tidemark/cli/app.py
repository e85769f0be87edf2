"""The entry point of ``tidemark``."""

import sys

from tidemark.cli import actions, questions
from tidemark.cli.root import app, explain
from tidemark.core.errors import TidemarkError

__all__ = ["actions", "app", "main", "questions"]


def main() -> None:
    """The command's entry point. A TidemarkError becomes one paragraph on standard error and exit code 1."""
    try:
        app()
    except TidemarkError as error:
        explain(error)
        sys.exit(1)
