"""``tidemark up``: a local stack in the foreground."""

import signal
from collections.abc import Sequence
from threading import Event

from rich.console import Console

from tidemark.cli.output import plain
from tidemark.connections.sources import ENV_FILE_VARIABLE
from tidemark.core.errors import ConfigError
from tidemark.definitions.stream import stream_names
from tidemark.installation import PROJECT
from tidemark.stack.airflow import USER, LocalAirflow
from tidemark.stack.local import LocalStack
from tidemark.stack.streams import start_streams

CHECK_S = 1
ALL = "all"


def run_stack(name: str, *, streams: Sequence[str], with_airflow: bool, secure: bool) -> None:
    """Start the stack and these streams (``all``: every one), and wait for Ctrl-C or SIGTERM."""
    console = Console(soft_wrap=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    stack = LocalStack(name, root=PROJECT, secure=secure)
    chosen = _chosen(streams, stream_names(stack.streams_dir))
    try:
        with console.status("starting Kafka and the S3 server"):
            stack.start()
        console.print("Kafka and S3 run.")
        for stream in chosen:
            with console.status(f"starting both layers of {stream}, half a minute each"):
                start_streams(stack, [stream])
            console.print(f"{stream} runs.")
        addresses = _addresses(stack)
        if with_airflow:
            airflow = LocalAirflow(stack)
            with console.status("starting Airflow, about a minute"):
                airflow.start()
            addresses.append(("Airflow", f"{airflow.api.url}, user {USER}, password in {airflow.password_file}"))
            addresses.append(("Streams in Airflow", airflow.pages_url))
        for label, value in addresses:
            console.print(plain(f"{label:<28}").append(value, style="bold"))
        console.print("Up. Ctrl-C stops everything and keeps the data.")
        while not Event().wait(CHECK_S):
            stack.processes.check()
    except KeyboardInterrupt:
        console.print("Stopping; the data stays in its folder.")
    finally:
        stack.stop()


def _chosen(wanted: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """The known streams that are wanted, in their order."""
    unknown = [name for name in wanted if name not in {*known, ALL}]
    if unknown:
        raise ConfigError(
            "no such stream",
            expected=f"some of: {', '.join(known) or 'none'}; or {ALL}",
            found=", ".join(unknown),
            hint="Name a file of the streams folder, without .yaml",
        )
    return tuple(name for name in known if ALL in wanted or name in wanted)


def _addresses(stack: LocalStack) -> list[tuple[str, str]]:
    settings = stack.settings
    return [
        ("Kafka", settings.kafka_bootstrap),
        ("S3", f"{settings.s3_endpoint}, bucket {settings.bucket}"),
        ("Iceberg catalog", settings.catalog_uri),
        ("settings and keys", f"{ENV_FILE_VARIABLE}={stack.env_file}"),
        *((f"{managed.name}, pid {managed.pid}", str(managed.log)) for managed in stack.processes),
    ]
