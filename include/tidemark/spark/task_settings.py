"""The settings as a task uses them, on an executor's machine."""

from pathlib import Path

from pyspark import SparkFiles

from tidemark.settings import Settings
from tidemark.spark.trust import SENT_BUNDLE


def task_settings(settings: Settings) -> Settings:
    """The same settings with the authorities' file that the driver sent: the path may lead nowhere on this machine."""
    if settings.s3_ca_bundle is None:
        return settings
    sent = Path(SparkFiles.get(SENT_BUNDLE))
    return settings.model_copy(update={"s3_ca_bundle": sent}) if sent.exists() else settings
