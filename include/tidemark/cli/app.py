"""The entry point of ``tidemark``."""

from tidemark.cli import actions, questions
from tidemark.cli.root import app

__all__ = ["actions", "app", "main", "questions"]


def main() -> None:
    """The command's entry point; see ``tidemark.cli.root`` for how it ends."""
    app()
