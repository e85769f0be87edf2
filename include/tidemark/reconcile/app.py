"""What the reconcile run's Spark applications share: their arguments, their session, and how they fail."""

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tidemark.core.errors import TidemarkError
from tidemark.core.masking import masked_failures
from tidemark.lineage.run_events import use_ancestors
from tidemark.logs import add_log_context, log_error, set_up_logs
from tidemark.reconcile.lease import renewing
from tidemark.run import Run
from tidemark.settings import log_format, settings
from tidemark.spark.session import spark_session


def step_app(
    name: str, step: Callable[..., object], about: str | None, form: Mapping[str, Callable[[str], Any]] | None = None
) -> None:
    """Do one step of the run that ``--stream`` and ``--run`` name; an explained failure is one line and exit code 1.

    ``step`` takes the run, the Spark session and, by name, each field of ``form``: an argument of the application that
    the callable makes a value of.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--stream", required=True, help="name of the stream's definition")
    parser.add_argument("--run", required=True, help="name of the reconcile run")
    for field, kind in (form or {}).items():
        parser.add_argument(f"--{field}", required=True, type=kind)
    arguments = parser.parse_args()
    try:
        set_up_logs(log_format())
        add_log_context(stream=arguments.stream, run=arguments.run, step=name)
        run = Run.open(arguments.stream, arguments.run, settings())
        with (
            masked_failures(personal=run.stream.has_personal),
            renewing(run),
            spark_session(
                run.settings,
                f"tidemark-{name}-{run.stream.name}",
                stream=run.stream.spark,
                personal=run.stream.has_personal,
            ) as spark,
        ):
            use_ancestors(dict(spark.sparkContext.getConf().getAll()))
            step(run, spark, **{field: getattr(arguments, field) for field in form or {}})
    except TidemarkError as error:
        log_error(error)
        sys.exit(1)
