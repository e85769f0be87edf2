"""One S3 server (S3Proxy with a folder as its store) on 127.0.0.1, with one access key."""

from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from tidemark.s3 import s3_client
from tidemark.settings import Settings
from tidemark.stack.files import properties_text, write_private
from tidemark.stack.java import java_argv
from tidemark.stack.processes import Managed, Processes

READY_S = 60
MAX_PUT_BYTES = 256 * 1024 * 1024
# S3Proxy's default is DEBUG, which writes gigabytes.
LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5level %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def start_s3proxy(
    processes: Processes, folder: Path, *, jars: Path, log: Path, port: int, settings: Settings
) -> Managed:
    """Start the server with the data in ``folder/data`` and the settings' access key."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    config = folder / "s3proxy.properties"
    write_private(config, properties_text(_config(data, port, settings)))
    logback = folder / "logback.xml"
    logback.write_text(LOGBACK, encoding="utf-8")
    argv = java_argv(
        jars,
        "org.gaul.s3proxy.Main",
        "--properties",
        str(config),
        heap="768m",  # it holds a request that isn't chunked in memory to check its signature
        properties={"logback.configurationFile": str(logback)},
    )
    return processes.start(
        "s3proxy",
        argv,
        env={},
        ready=lambda: _answers(settings),
        timeout_s=READY_S,
        log=log,
        cwd=folder,
        essential=True,
    )


def _config(data: Path, port: int, settings: Settings) -> dict[str, str]:
    return {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": settings.s3_access_key.get_secret_value(),
        "s3proxy.credential": settings.s3_secret_key.get_secret_value(),
        "s3proxy.v4-max-non-chunked-request-size": str(MAX_PUT_BYTES),
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": str(data),
    }


def _answers(settings: Settings) -> bool:
    try:
        s3_client(settings, attempts=1).list_buckets()
    except (ClientError, BotoCoreError):
        return False
    return True
