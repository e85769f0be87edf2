"""The Spark session of a command."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from pyspark.sql import SparkSession
from rich.console import Console

from tidemark.settings import Settings
from tidemark.spark.java_command import java_command
from tidemark.spark.session import quiet_session
from tidemark.stack.java import BRIEF_JVM


@contextmanager
def command_spark(settings: Settings, name: str, console: Console | None = None) -> Iterator[SparkSession]:
    """Start Spark, with a spinner on the console if there is one, and stop it. Raises StackError without Java."""
    java_command()
    os.environ.update(BRIEF_JVM)
    with console.status("starting Spark, about ten seconds") if console else nullcontext():
        spark = quiet_session(settings, name)
    if threading.current_thread() is threading.main_thread():
        # Spark's own handler asks the JVM from inside a call of it: Ctrl-C would then end with an error of Py4J.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield spark
    finally:
        spark.stop()
