"""Where the services are: read from ``TIDEMARK_*`` variables, else from the running local stack's file."""

import os
from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidemark.core.errors import ConfigError

ENV_FILE_VARIABLE = "TIDEMARK_ENV_FILE"


class Settings(BaseSettings):
    """Connections of one deployment. Paths may be relative to the project's root; no value has a secret as default."""

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", extra="forbid", frozen=True)

    kafka_bootstrap: str = Field(description="host:port list of the Kafka cluster")
    speed_kafka_bootstrap: str | None = Field(
        default=None, description="the cluster of live and dead-letter topics; unset means that of the source"
    )
    s3_endpoint: str | None = Field(
        default=None, pattern=r"^https?://\S+$", description="URL of the S3 server; unset means AWS"
    )
    s3_region: str = "us-east-1"
    s3_access_key: SecretStr
    s3_secret_key: SecretStr
    bucket: str
    prefix: str = Field(default="", description="the archive's folder in the bucket, no slash at either end")
    catalog: str = Field(default="tidemark", description="name of the Iceberg catalog, the same for every reader")
    catalog_uri: str = Field(description="JDBC URL of the Iceberg catalog, e.g. jdbc:sqlite:/data/catalog.db")
    namespace: str = Field(default="published", description="Iceberg namespace of the published tables")
    streams_dir: Path = Path("include/streams")
    jars_dir: Path = Path(".tidemark/jars/spark")
    spark_master: str = "local[2]"
    spark_driver_memory: str = "1g"

    @property
    def speed_bootstrap(self) -> str:
        """The Kafka cluster that the speed layer writes to."""
        return self.speed_kafka_bootstrap or self.kafka_bootstrap

    @property
    def warehouse(self) -> str:
        """The Iceberg warehouse's URL."""
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, "warehouse") if part)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The process's settings.

    Raises ConfigError naming every missing or malformed variable, and the file that was read.
    """
    env_file = os.environ.get(ENV_FILE_VARIABLE, ".tidemark/local/stack.env")
    try:
        return Settings(_env_file=env_file)  # type: ignore[call-arg]  # pydantic-settings fills the fields
    except ValidationError as error:
        lines = "; ".join(f"TIDEMARK_{str(item['loc'][0]).upper()}: {item['msg']}" for item in error.errors())
        raise ConfigError(
            "settings are incomplete",
            found=lines,
            where=f"environment and {env_file}" + ("" if Path(env_file).exists() else " (no such file)"),
            hint="Start a local stack with 'tidemark up', set the variables, or name a file that has them in"
            f" {ENV_FILE_VARIABLE}: a stack's is .tidemark/<name>/stack.env",
        ) from error
