"""Command line and failure of the continuous Spark applications."""

import argparse
import sys
from typing import Protocol

from tidemark.core.errors import TidemarkError
from tidemark.core.masking import masked_failures
from tidemark.definitions.stream import Stream, load_stream
from tidemark.logs import add_log_context, log_error, set_up_logs
from tidemark.settings import Settings, log_format, settings


class RunStream(Protocol):
    """Runs one layer of a stream until stopped."""

    def __call__(self, stream: Stream, settings: Settings, *, available_now: bool) -> object: ...


def stream_app(run: RunStream, about: str | None) -> None:
    """Run a layer of the stream named on the command line.

    A TidemarkError becomes one line on standard error and its exit code.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("stream", help="name of the stream's definition")
    parser.add_argument("--available-now", action="store_true", help="process the current records, then end")
    arguments = parser.parse_args()
    try:
        set_up_logs(log_format())
        add_log_context(stream=arguments.stream)
        connections = settings()
        stream = load_stream(arguments.stream, connections.streams_dir)
        with masked_failures(personal=stream.has_personal):
            run(stream, connections, available_now=arguments.available_now)
    except TidemarkError as error:
        log_error(error)
        sys.exit(error.exit_code)
