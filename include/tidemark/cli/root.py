"""The command line itself: its options, what all commands share, and how they end.

Every command ends with one of ``EXIT_CODES``. A command that only asks is a ``Question``: an error then means that it
could not find out. An error of an ``Action`` means that it failed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, NoReturn, cast

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from tidemark.cli.completion import complete_stack, complete_stream
from tidemark.cli.output import plain
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.installation import missing_package
from tidemark.logs import json_logs, log_error, set_up_logs

FINE, WRONG, NOT_FOUND_OUT, USAGE, INTERRUPTED = 0, 1, 2, 64, 130
EXIT_CODES = {
    FINE: "The command did its work, and what it found is fine.",
    WRONG: "It found something that needs attention, or it failed.",
    NOT_FOUND_OUT: "It could not find out, because of an error or missing evidence.",
    USAGE: "The command line is wrong: an unknown command or option, a missing argument, a value of the wrong form.",
    INTERRUPTED: "Ctrl-C ended it.",
}


# Typer does not export it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class _Command(TyperCommand):
    error_code: ClassVar[int]

    def invoke(self, ctx: Any) -> Any:
        """Call the command. An error is printed, explained or as a traceback, and ends it with the exit code."""
        as_json = ctx.params.get("as_json")
        try:
            with _missing_package_explained():
                return super().invoke(ctx)
        except (typer.Exit, typer.Abort, _UsageError, BrokenPipeError):
            raise
        except TidemarkError as error:
            if as_json:
                self._print_error(error)
            else:
                explain(error)
            raise typer.Exit(self.error_code) from error
        except Exception as error:  # a fault of Tidemark, or of a stream's code: scripts rely on it all the same
            if as_json:
                with suppress(OSError):  # it may be about standard output itself
                    self._print_error(error)
            sys.excepthook(type(error), error, error.__traceback__)
            raise typer.Exit(self.error_code) from error

    def _print_error(self, error: Exception) -> None:
        from tidemark.cli.json_output import print_error

        print_error(str(self.name), error)


@contextmanager
def _missing_package_explained() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        hint = missing_package(error)
        if hint is None:
            raise
        raise ConfigError("this command needs a package that is not installed", found=error, hint=hint) from error


class Question(_Command):
    """A command that only asks."""

    error_code = NOT_FOUND_OUT


class Action(_Command):
    """A command that does something."""

    error_code = WRONG


class _Commands(TyperGroup):
    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Do what typer does, with our exit code for a wrong command line."""
        with _usage():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Do what typer does, with our exit code for a wrong command line."""
        with _usage():
            return super().invoke(ctx)


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        cast("Any", error).exit_code = USAGE
        raise


app = typer.Typer(
    name="tidemark",
    help="Archive Kafka topics to S3, deliver them transformed, and prove every day complete.",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Stack = Annotated[
    str | None,
    typer.Option(
        help="A local stack (local, demo). Default: TIDEMARK_* variables, or else the running stack.",
        autocompletion=complete_stack,
    ),
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure", help="Start it with TLS, a user per role with the least permissions, encryption and a REST catalog."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object. Its schema is documented.")]
StreamName = Annotated[str, typer.Argument(help="The stream's name.", autocompletion=complete_stream)]
AnyStream = Annotated[
    str | None,
    typer.Argument(help="The stream's name. Default: every stream.", autocompletion=complete_stream),
]
Day = Annotated[str, typer.Argument(help="A day, in the stream's time zone.")]


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool,
        typer.Option(
            "--version", callback=lambda wanted: _version(wanted=wanted), is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    from tidemark.settings import log_format

    with suppress(TidemarkError):  # a command that needs the settings reports it
        set_up_logs(log_format())


def exit_with(code: int) -> NoReturn:
    """End the command with one of ``EXIT_CODES``."""
    raise typer.Exit(code)


def explain(error: TidemarkError) -> None:
    """Print the error on standard error, as text only, or as a log line where those are JSON."""
    if json_logs():
        log_error(error)
        return
    console = Console(stderr=True, soft_wrap=True)
    for line in f"{type(error).__name__}: {error}".split("\n"):
        console.print(plain(line, style="red"))
