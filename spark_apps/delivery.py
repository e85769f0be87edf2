"""Compare a stream's output topics with its archive."""

import argparse
import sys
from datetime import UTC, datetime

from tidemark.core.errors import TidemarkError
from tidemark.delivery_audit.audit import audit_delivery
from tidemark.delivery_audit.report import EXIT_CODES
from tidemark.delivery_audit.span import parse_span
from tidemark.run import Run, run_name
from tidemark.settings import settings
from tidemark.spark.session import spark_session
from tidemark.spark.streaming import log_event


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stream", help="the stream's name")
    parser.add_argument("--from", dest="start", help="a day or a time, in the stream's time zone")
    parser.add_argument("--to", dest="end", help="the last day (inclusive) or a time (exclusive)")
    arguments = parser.parse_args()
    try:
        now = datetime.now(UTC)
        run = Run.open(arguments.stream, run_name(f"delivery-{now:%Y%m%dT%H%M%S%fZ}"), settings())
        span = parse_span(arguments.start, arguments.end, run.stream.zone, now)
        with spark_session(run.settings, f"tidemark-delivery-{run.stream.name}") as spark:
            tally = audit_delivery(run, spark, span)
    except TidemarkError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - the application's answer
        return EXIT_CODES["unknown"]
    log_event("audited", layer="speed", stream=run.stream.name, run=run.name, verdict=tally.verdict, **tally.counts())
    return EXIT_CODES[tally.verdict]


if __name__ == "__main__":
    sys.exit(main())
