"""The command line itself: its options, what all commands share, and how they end."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from tidemark.cli.output import plain
from tidemark.core.errors import TidemarkError

app = typer.Typer(
    name="tidemark",
    help="Archive Kafka topics to S3, deliver them transformed, and prove every day complete.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Stack = Annotated[
    str | None,
    typer.Option(help="A local stack (local, demo). Default: TIDEMARK_* variables, or else the running stack."),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure", help="Start it with TLS, a user per role with the least permissions, encryption and a REST catalog."
    ),
]
StreamName = Annotated[str, typer.Argument(help="The stream's name.")]
Day = Annotated[str, typer.Argument(help="A day, in the stream's time zone.")]


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=lambda wanted: _version(wanted=wanted), is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    pass


def exit_with(code: Callable[[], int]) -> None:
    """Exit with the code, or with 2 if an error kept the command from finding out."""
    try:
        raise typer.Exit(code())
    except TidemarkError as error:
        explain(error)
        raise typer.Exit(2) from error


def explain(error: TidemarkError) -> None:
    """Print the error on standard error, as text only."""
    console = Console(stderr=True, soft_wrap=True)
    for line in f"{type(error).__name__}: {error}".split("\n"):
        console.print(plain(line, style="red"))
