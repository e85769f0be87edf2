"""Connection settings, from ``TIDEMARK_*`` variables or the local stack's file."""

import os
import re
from functools import lru_cache
from pathlib import Path

from pydantic import Field, Secret, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tidemark.connections.kafka import SERVERS, KafkaConnection
from tidemark.core.errors import ConfigError

ENV_FILE_VARIABLE = "TIDEMARK_ENV_FILE"
_DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")


class Settings(BaseSettings):
    """Connections of one deployment. Paths may be relative to the project's root. No secret has a default."""

    model_config = SettingsConfigDict(env_prefix="TIDEMARK_", extra="forbid", frozen=True)

    kafka_bootstrap: str = Field(description="Brokers of the Kafka cluster: a list of `host:port`.")
    kafka_properties: Secret[dict[str, str]] = Field(
        default=Secret({}),
        description="How clients reach these brokers, as a JSON object with librdkafka's names, such as"
        ' `{"security.protocol": "SASL_SSL", ...}`.',
    )
    speed_kafka_bootstrap: str | None = Field(
        default=None, description="Brokers for the live and dead-letter topics. Without it: the source's cluster."
    )
    speed_kafka_properties: Secret[dict[str, str]] = Field(
        default=Secret({}), description="The same for the brokers of the live and dead-letter topics."
    )
    s3_endpoint: str | None = Field(
        default=None, pattern=r"^https?://\S+$", description="URL of the S3 server. Without it: AWS."
    )
    s3_region: str = Field(default="us-east-1", description="Region of the bucket.")
    s3_access_key: SecretStr = Field(description="Access key for S3.")
    s3_secret_key: SecretStr = Field(description="Secret key for S3.")
    bucket: str = Field(description="Bucket of the archive and of the tables.")
    prefix: str = Field(
        default="", description="Folder of the archive and of the tables in the bucket, without a slash at either end."
    )
    deployment: str = Field(
        default="",
        validate_default=True,
        description="Name of this deployment in Kafka, such as `prod`: transactional ids, markers and consumer groups"
        " carry it. Letters, digits and `._/-`, at most 200. Without it: bucket and prefix, such as `lake/prod`.",
    )
    catalog: str = Field(default="tidemark", description="Name of the Iceberg catalog, the same for every reader.")
    catalog_uri: str = Field(description="JDBC URL of the Iceberg catalog, such as `jdbc:sqlite:/data/catalog.db`.")
    namespace: str = Field(default="published", description="Iceberg namespace of the tables.")
    streams_dir: Path = Field(default=Path("include/streams"), description="Folder of the stream definitions.")
    jars_dir: Path = Field(default=Path(".tidemark/jars/spark"), description="Folder of the jars that Spark loads.")
    spark_master: str = Field(default="local[2]", description="Spark's master URL.")
    spark_driver_memory: str = Field(default="1g", description="Memory of Spark's driver.")

    def __hash__(self) -> int:
        return hash((self.kafka_bootstrap, self.s3_endpoint, self.deployment))  # mappings have no hash

    @field_validator("deployment")
    @classmethod
    def _named(cls, name: str, given: ValidationInfo) -> str:
        """The name, or the one from bucket and prefix."""
        name = name or "/".join(filter(None, (given.data.get("bucket"), given.data.get("prefix"))))
        if not _DEPLOYMENT.fullmatch(name):
            raise ValueError(
                "expected letters, digits and ._/-, at most 200, the first a letter or digit; found"
                f" {name!r}, which comes from TIDEMARK_BUCKET and TIDEMARK_PREFIX if no name is set"
            )
        return name

    @property
    def client_prefix(self) -> str:
        """What the deployment's transactional ids and consumer groups begin with."""
        return f"tidemark-{self.deployment}"

    @property
    def kafka(self) -> KafkaConnection:
        """The cluster of the source topics."""
        return KafkaConnection({**self.kafka_properties.get_secret_value(), SERVERS: self.kafka_bootstrap})

    @property
    def speed_kafka(self) -> KafkaConnection:
        """The cluster of the live and dead-letter topics."""
        if self.speed_kafka_bootstrap is None:
            return self.kafka
        return KafkaConnection({**self.speed_kafka_properties.get_secret_value(), SERVERS: self.speed_kafka_bootstrap})

    @property
    def warehouse(self) -> str:
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, "warehouse") if part)


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The process's settings. Raises ConfigError with every missing or malformed variable and the file."""
    env_file = os.environ.get(ENV_FILE_VARIABLE, ".tidemark/local/stack.env")
    try:
        return Settings(_env_file=env_file)  # type: ignore[call-arg]  # pydantic-settings fills the fields
    except ValidationError as error:
        lines = "; ".join(f"TIDEMARK_{str(item['loc'][0]).upper()}: {item['msg']}" for item in error.errors())
        raise ConfigError(
            "settings are incomplete",
            found=lines,
            where=f"environment and {env_file}" + ("" if Path(env_file).exists() else " (no such file)"),
            hint=f"Start a local stack with 'tidemark up', set the variables, or set {ENV_FILE_VARIABLE} to a file that"
            " has them: a stack's is .tidemark/<name>/stack.env",
        ) from error
