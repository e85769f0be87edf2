"""The JVM's log of an application whose rows have personal data: no line shows what an error says of a value.

Spark logs the error of a failed task with the value that it failed on. Its loggers are many, so the log's form is
changed, not their levels: a line ends at the name of an error, and has no stack trace.
"""

import logging
from typing import Any

from pyspark.sql import SparkSession

from tidemark.core.masking import MASK
from tidemark.logs import json_logs
from tidemark.spark.java import jvm, set_log_level

# Event logs have the errors of tasks and queries. Executors of a cluster write a log of their own on their machines;
# the driver sends them its level.
CONF = {"spark.eventLog.enabled": "false", "spark.executor.syncLogLevel.enabled": "true"}
_SHOWN = f"%replace{{%m}}{{(?s)((?:[A-Za-z_][\\w$]*[.])*[\\w$]*(?:Exception|Error|Traceback)).*}}{{$1: {MASK}}}"
_TEXT = f"%d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: {_SHOWN}%n"
_LEVELS = "%level{FATAL=critical, ERROR=error, WARN=warning, INFO=info, DEBUG=debug, TRACE=debug}"
_JSON = (
    '{"time": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSS}{UTC}+00:00", "level": "' + _LEVELS + '", "logger": "%c",'
    f' "message": "%enc{{{_SHOWN}}}{{JSON}}", "thread": "%enc{{%t}}{{JSON}}"}}%n'
)


def mask_log(session: SparkSession, level: str) -> None:
    """Mask the log of this process, from ``level`` on, and switch off those of the executors."""
    session.sparkContext.setLogLevel("OFF")
    log4j = jvm(session).org.apache.logging.log4j
    context = log4j.core.LoggerContext.getContext(False)
    root = context.getConfiguration().getRootLogger()
    for name in list(root.getAppenders().keySet()):
        root.removeAppender(name)
    root.addAppender(_appender(session, log4j), None, None)
    context.updateLoggers()
    set_log_level(session, level.upper())
    # It prints the trace of an error in a function that Spark calls for each batch.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)


def _appender(session: SparkSession, log4j: Any) -> Any:
    layout = (
        log4j.core.layout.PatternLayout.newBuilder()
        .withPattern(_JSON if json_logs() else _TEXT)
        .withAlwaysWriteExceptions(False)
        .withCharset(jvm(session).java.nio.charset.StandardCharsets.UTF_8)
        .build()
    )
    console = log4j.core.appender.ConsoleAppender
    appender = console.newBuilder().setName("masked").setTarget(console.Target.SYSTEM_ERR).setLayout(layout).build()
    appender.start()
    return appender
