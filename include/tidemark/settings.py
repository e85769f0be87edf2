"""The settings of a deployment, and where each comes from."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Secret,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tidemark.connections.catalog import CatalogConnection, CatalogType, checked_uri
from tidemark.connections.config_file import from_file
from tidemark.connections.kafka import SERVERS, KafkaConnection
from tidemark.connections.notifiers import NotifierSetting, different
from tidemark.connections.setting_texts import problem_text, source_text
from tidemark.connections.setting_types import Address, Link, OptionalAddress, Properties, Url
from tidemark.connections.setting_values import json_list, json_object, none_if_empty, plain_text
from tidemark.connections.shown import open_address
from tidemark.connections.sources import (
    CONFIG_VARIABLE,
    ENV_FILE_VARIABLE,
    OWN_VARIABLES,
    Given,
    Lookup,
    env_file,
    from_airflow,
    from_variables,
    variable,
)
from tidemark.connections.spark import Layer, SparkSettings, SparkSizes
from tidemark.connections.spark_submit import checked_way
from tidemark.core.certificate import private_key
from tidemark.core.errors import ConfigError
from tidemark.installation import SPARK_JARS
from tidemark.logs import LogFormat

_DEPLOYMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_NAME = r"^[A-Za-z0-9_]+$"  # it stands in SQL


class Settings(BaseModel):
    """Connections of one deployment. Paths may be relative to the project's root. No secret has a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)

    kafka_properties: Secret[Properties] = Field(
        default=Secret({}),
        description="Security and other properties of the Kafka connection, with librdkafka's names, such as"
        ' `{"security.protocol": "SASL_SSL", ...}`.',
    )
    kafka_bootstrap: Address = Field(
        default="",
        description="Brokers of the Kafka cluster: a list of `host:port`. Required, here or as `bootstrap.servers` of"
        " the properties.",
    )
    speed_kafka_properties: Secret[Properties] = Field(
        default=Secret({}), description="Properties of the connection to `TIDEMARK_SPEED_KAFKA_BOOTSTRAP`."
    )
    speed_kafka_bootstrap: OptionalAddress = Field(
        default=None,
        description="Brokers of the live and dead-letter topics: `host:port`. Without it: the source's cluster.",
    )
    s3_endpoint: OptionalAddress = Field(
        default=None, pattern=r"^https?://[^\s@]+$", description="URL of the S3 server. Without it: AWS."
    )
    s3_region: str = Field(default="us-east-1", description="Region of the bucket.")
    s3_access_key: SecretStr = Field(
        default=SecretStr(""),
        description="Access key for S3. Without keys and profile: the machine's identity, as AWS's clients find it.",
    )
    s3_secret_key: SecretStr = Field(default=SecretStr(""), description="Secret key for S3.")
    s3_session_token: SecretStr = Field(default=SecretStr(""), description="Session token of temporary keys.")
    s3_profile: str = Field(default="", description="Profile in the files of AWS's clients, instead of keys.")
    s3_role_arn: str = Field(
        default="", description="Role to assume with the keys, the profile or the machine's identity."
    )
    s3_external_id: str = Field(default="", description="External id that the role asks for.")
    s3_sts_endpoint: Url = Field(
        default="", description="URL of the server that gives the role's keys. Without it: AWS."
    )
    s3_addressing: Literal["auto", "path", "virtual"] = Field(
        default="auto",
        description="Where the bucket's name stands in URLs: `path`, `virtual` (the host's name) or `auto`. That is"
        " `path` with `TIDEMARK_S3_ENDPOINT`, and `virtual` at AWS.",
    )
    s3_ca_bundle: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None, description="PEM file of the authorities that sign S3's certificate. Without it: public ones."
    )
    s3_proxy: Url = Field(default="", description="URL of the HTTP proxy for S3, without user and password.")
    s3_requester_pays: bool = Field(
        default=False, description="Whether to pay for requests to another account's bucket."
    )
    s3_encryption: Annotated[Literal["AES256", "aws:kms"] | None, BeforeValidator(none_if_empty)] = Field(
        default=None,
        description="Encryption of every written object: `AES256` or `aws:kms`. Without it: the bucket's default.",
    )
    s3_kms_key: str = Field(
        default="", description="Id or ARN of the KMS key, with `aws:kms`. Without it: AWS's own key."
    )
    s3_bucket_key: bool = Field(default=False, description="Whether `aws:kms` uses a bucket key, which saves requests.")
    bucket: str = Field(description="Bucket of the archive and of the tables.")
    prefix: str = Field(
        default="", description="Folder of the archive and of the tables in the bucket, without a slash at either end."
    )
    deployment: str = Field(
        default="",
        description="Name of this deployment in Kafka, such as `prod`: transactional ids, markers and consumer groups"
        " contain it. Letters, digits and `._/-`, at most 200. Without it: bucket and prefix, such as `lake/prod`.",
    )
    catalog: str = Field(
        default="tidemark", pattern=_NAME, description="Name of the Iceberg catalog, the same for every reader."
    )
    catalog_type: CatalogType = Field(default="jdbc", description="`jdbc`, `rest`, `glue`, `hive` or `nessie`.")
    catalog_properties: Secret[Properties] = Field(
        default=Secret({}),
        description='Properties of the catalog, with Iceberg\'s names, such as `{"credential": "...", ...}`.',
    )
    catalog_uri: str = Field(
        default="",
        description="URL of the Iceberg catalog, such as `jdbc:sqlite:/data/catalog.db`. Required, here or as `uri` of"
        " the properties, for every type but `glue`.",
    )
    namespace: str = Field(default="published", pattern=_NAME, description="Iceberg namespace of the tables.")
    table_location: str = Field(
        default="",
        pattern=r"^(s3://[^/\s]+(/\S+)?)?$",
        description="Folder of new tables, such as `s3://lake/tables`. Without it: the catalog's choice.",
    )
    table_properties: Properties = Field(
        default={}, description='Properties of new tables, such as `{"write.parquet.compression-codec": "zstd"}`.'
    )
    certificate_key: SecretStr = Field(
        default=SecretStr(""),
        description="Private key that signs certificates of days: Ed25519, in PEM. Without it they are unsigned.",
    )
    kafka_connection: str = Field(
        default="tidemark_kafka",
        description="Id of the Airflow connection for `TIDEMARK_KAFKA_PROPERTIES`, if they are not set. Empty: none.",
    )
    speed_kafka_connection: str = Field(
        default="", description="The same for `TIDEMARK_SPEED_KAFKA_PROPERTIES`. Empty: none."
    )
    s3_connection: str = Field(
        default="tidemark_s3",
        description="Id of the Airflow connection for keys, profile or role of S3, if none is set. Empty: none.",
    )
    catalog_connection: str = Field(
        default="tidemark_catalog",
        description="Id of the Airflow connection for URL and properties of the catalog, if the properties are not set."
        " Empty: none.",
    )
    streams_dir: Path = Field(default=Path("include/streams"), description="Folder of the stream definitions.")
    jars_dir: Path = Field(default=SPARK_JARS, description="Folder of Spark's jars. `tidemark jars` fills the default.")
    spark_master: str = Field(default="local[2]", description="Spark's master URL.")
    spark: Annotated[SparkSettings, BeforeValidator(json_object)] = Field(
        default=SparkSettings(),
        description='Sizes and properties of Spark applications, such as `{"executor_memory": "4g"}`: the keys of a'
        " stream's section `spark`, whose values win over these.",
    )
    spark_submit: Annotated[str, AfterValidator(checked_way)] = Field(
        default="client",
        description="How Airflow submits steps: `client`, `cluster`, `kubernetes` or a class, `package.module:Class`.",
    )
    spark_application: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        default=None, description="YAML file of the SparkApplication that `kubernetes` submits, for every step."
    )
    watch_minutes: int = Field(
        default=5, ge=1, le=1440, description="How often the DAG `tidemark_watch` checks the streams, in minutes."
    )
    notifiers: Annotated[tuple[NotifierSetting, ...], BeforeValidator(json_list), AfterValidator(different)] = Field(
        default=(),
        description="Notifiers of Airflow that announce problems: a list of"
        ' `{"class": "package.module.Class", "kwargs": {...}}`.',
    )
    docs_url: Link = Field(
        default="",
        description="URL of your copy of this documentation. Notifications link its runbooks.",
    )
    spark_pool: str = Field(default="default_pool", min_length=1, description="Airflow's pool for Spark steps.")
    log_format: LogFormat = Field(default="text", description="Form of log lines: `text`, or `json`, an object each.")

    def __hash__(self) -> int:
        return hash((self.kafka_bootstrap, self.s3_endpoint, self.deployment))  # mappings have no hash

    @field_validator("s3_access_key", "s3_session_token")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        """The key. HTTP clients refuse a header with a line break, and show it."""
        if re.search(r"[^!-~]", key.get_secret_value()):
            raise ValueError("it has a space, a line break or another character that no key has")
        return key

    @field_validator("certificate_key")
    @classmethod
    def _signs(cls, key: SecretStr) -> SecretStr:
        if key.get_secret_value():
            private_key(key.get_secret_value())
        return key

    @field_validator("kafka_bootstrap")
    @classmethod
    def _has_brokers(cls, brokers: str, given: ValidationInfo) -> str:
        """The brokers, or those of the properties."""
        brokers = brokers or _property(given, "kafka_properties", SERVERS)
        if not brokers and "kafka_properties" in given.data:  # else they are reported
            raise ValueError(f"missing; set it, or {SERVERS} in TIDEMARK_KAFKA_PROPERTIES")
        return brokers

    @field_validator("speed_kafka_bootstrap")
    @classmethod
    def _has_speed_brokers(cls, brokers: str | None, given: ValidationInfo) -> str | None:
        """The brokers, or those of the properties. Properties without brokers are an error."""
        brokers = brokers or _property(given, "speed_kafka_properties", SERVERS) or None
        if brokers is None and given.data.get("speed_kafka_properties", Secret({})).get_secret_value():
            raise ValueError(f"missing; set it, or {SERVERS} in TIDEMARK_SPEED_KAFKA_PROPERTIES")
        return brokers

    @field_validator("deployment")
    @classmethod
    def _named(cls, name: str, given: ValidationInfo) -> str:
        """The name, or the one from bucket and prefix."""
        name = name or "/".join(filter(None, (given.data.get("bucket"), given.data.get("prefix"))))
        if not name and "bucket" not in given.data:
            return name  # the missing bucket is reported
        if not _DEPLOYMENT.fullmatch(name):
            raise ValueError(
                "expected letters, digits and ._/-, at most 200, the first a letter or digit; found"
                f" {name!r}, which comes from TIDEMARK_BUCKET and TIDEMARK_PREFIX if no name is set"
            )
        return name

    @field_validator("catalog_uri")
    @classmethod
    def _has_catalog(cls, uri: str, given: ValidationInfo) -> str:
        """The URL, or the one of the properties."""
        uri = uri or _property(given, "catalog_properties", "uri")
        usable = "catalog_type" in given.data and "catalog_properties" in given.data  # else they are reported
        return checked_uri(given.data["catalog_type"], uri) if usable else uri

    @model_validator(mode="after")
    def _agrees(self) -> "Settings":
        """Settings that need or exclude each other."""
        for name, wrong, problem in (
            ("s3_secret_key", self.s3_access_key and not self.s3_secret_key, "missing, S3_ACCESS_KEY needs it"),
            ("s3_access_key", self.s3_secret_key and not self.s3_access_key, "missing, S3_SECRET_KEY needs it"),
            ("s3_session_token", self.s3_session_token and not self.s3_access_key, "needs S3_ACCESS_KEY"),
            ("s3_profile", self.s3_profile and self.s3_access_key, "excludes S3_ACCESS_KEY"),
            ("s3_external_id", self.s3_external_id and not self.s3_role_arn, "needs S3_ROLE_ARN"),
            ("s3_sts_endpoint", self.s3_sts_endpoint and not self.s3_role_arn, "needs S3_ROLE_ARN"),
            ("s3_kms_key", self.s3_kms_key and self.s3_encryption != "aws:kms", "needs aws:kms in S3_ENCRYPTION"),
            ("s3_bucket_key", self.s3_bucket_key and self.s3_encryption != "aws:kms", "needs aws:kms in S3_ENCRYPTION"),
        ):
            if wrong:
                raise ValueError(f"TIDEMARK_{name.upper()}: {problem.replace('S3_', 'TIDEMARK_S3_')}")
        try:
            self.iceberg.checked()
        except ValueError as error:
            raise ValueError(f"TIDEMARK_CATALOG_PROPERTIES: {error}") from None
        return self

    @property
    def iceberg(self) -> CatalogConnection:
        """The catalog of the tables."""
        properties = self.catalog_properties.get_secret_value()
        return CatalogConnection(self.catalog_type, self.catalog_uri, self.warehouse, properties)

    @property
    def client_prefix(self) -> str:
        """What the deployment's transactional ids and consumer groups begin with."""
        return f"tidemark-{self.deployment}"

    @property
    def lineage_namespace(self) -> str:
        """OpenLineage's namespace of the deployment's jobs."""
        return os.environ.get("OPENLINEAGE_NAMESPACE") or self.client_prefix

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

    def spark_sizes(self, layer: Layer, stream: SparkSettings | None = None) -> SparkSizes:
        """What holds for the Spark applications of a layer: the stream's section before the deployment's."""
        own = self.spark.of(layer)
        return own if stream is None else stream.of(layer).over(own)

    @property
    def warehouse(self) -> str:
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, "warehouse") if part)

    def table_folder(self, name: str) -> str | None:
        """Where a new table of this name is put; None: the catalog chooses."""
        return f"{self.table_location.rstrip('/')}/{name}" if self.table_location else None

    def environment(self) -> dict[str, str]:
        """Variables that give a program that inherits them exactly these settings. They hold every secret."""
        return dict.fromkeys(OWN_VARIABLES, "") | {variable(name): text for name, text in self.texts().items()}

    def texts(self) -> dict[str, str]:
        """Every setting as a text, for variables or a file. They hold every secret."""
        found = {name: plain_text(getattr(self, name)) for name in type(self).model_fields}
        return {name: text for name, text in found.items() if text is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsWithSources:
    """Settings, and for people the source of each by its name."""

    settings: Settings
    sources: Mapping[str, str]


def resolve(lookup: Lookup | None = None, variables: Mapping[str, str] = os.environ) -> SettingsWithSources:
    """Read the settings from variables, the TOML file and, with ``lookup``, Airflow connections.

    Raises ConfigError with every missing, malformed or contradictory setting, and never with a secret.
    """
    names = Settings.model_fields
    given = _given(variables, names)
    if lookup is not None:
        defaults = {name: Given(names[name].default, "default") for name in names if name.endswith("_connection")}
        ids = {name: str((given.get(name) or default).value) for name, default in defaults.items()}
        given = from_airflow(given, ids, lookup) | given
    try:
        found = Settings.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        files = [path for path in (env_file(variables), variables.get(CONFIG_VARIABLE)) if path]
        shown = (f"{path}{'' if Path(path).exists() else ' (no such file)'}" for path in files)
        raise ConfigError(
            "settings are missing or wrong",
            found="; ".join(problem_text(item, given) for item in error.errors(include_input=False)),
            where=" and ".join(["environment", *shown]),
            hint=f"Correct them there, or in the TOML file of {CONFIG_VARIABLE}. For a local stack run 'tidemark up',"
            f" and set {ENV_FILE_VARIABLE} to .tidemark/<name>/stack.env",
        ) from error
    return SettingsWithSources(settings=found, sources={name: source_text(name, given) for name in names})


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The process's settings, without Airflow's connections. Raises as ``resolve``."""
    return resolve().settings


def settings_source(name: str) -> str:
    """Where the process's setting comes from, for people. Raises as ``resolve``."""
    return resolve().sources[name]


def streams_dir() -> Path:
    """The folder of the stream definitions. Parsing a DAG needs it and ``spark_submit``: no secret, no connection."""
    return Path(plain_setting("streams_dir").value)


def log_format() -> LogFormat:
    """The form of this process's log lines, before the other settings are read. Reading those refuses an unknown form;
    until then it means text."""
    return "json" if plain_setting("log_format").value == "json" else "text"


def plain_setting(name: str) -> Given:
    """One setting as its source has it, unchecked. The others may be missing or wrong."""
    default = Given(Settings.model_fields[name].default, "default")
    return _given(os.environ, [name]).get(name, default)


def _given(variables: Mapping[str, str], wanted: Collection[str]) -> dict[str, Given]:
    known = Settings.model_fields
    return from_file(known, wanted, variables) | from_variables(known, variables)


def _property(given: ValidationInfo, name: str, key: str) -> str:
    """An address among a setting's properties, empty if it has none."""
    properties: Secret[dict[str, str]] = given.data.get(name, Secret({}))
    return open_address(properties.get_secret_value().get(key, ""))
