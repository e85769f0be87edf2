"""How Spark's two S3 clients reach S3: S3A for checkpoints and data objects, Iceberg's S3FileIO for tables.

The driver finds keys in its environment. Executors get them over Spark's own channels, from what the driver sets in the
running session: ``s3a_keys`` and ``file_io_keys``. Airflow imports this, so it needs no Spark.
"""

from urllib.parse import urlsplit

from tidemark.connections.s3 import ROLE_SESSION
from tidemark.connections.spark import is_local
from tidemark.core.errors import ConfigError
from tidemark.s3 import path_style
from tidemark.settings import Settings
from tidemark.spark.trust import sent_files

_PROVIDERS = "software.amazon.awssdk.auth.credentials"
_SSE = {"AES256": ("AES256", "s3"), "aws:kms": ("SSE-KMS", "kms")}  # in the words of S3A and of S3FileIO


def own_provider(settings: Settings) -> str:
    """The Java class that finds the caller's own keys, before it assumes a role."""
    if settings.s3_access_key:
        return f"{_PROVIDERS}.EnvironmentVariableCredentialsProvider"
    return f"{_PROVIDERS}.{'ProfileCredentialsProvider' if settings.s3_profile else 'DefaultCredentialsProvider'}"


def s3_conf(settings: Settings, catalog: str) -> dict[str, str]:
    """Spark properties of both clients, and the variables of executors. ``catalog`` is the prefix of its properties."""
    return {
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in _s3a(settings).items()},
        **{f"{catalog}.{name}": value for name, value in file_io_properties(settings).items()},
        **{f"spark.executorEnv.{name}": value for name, value in _open_variables(settings).items()},
        # Executors get the files in the folder where they run.
        **({"spark.files": ",".join(map(str, sent))} if (sent := sent_files(settings.s3_ca_bundle)) else {}),
    }


def s3a_keys(settings: Settings) -> dict[str, str]:
    """Hadoop's properties with the keys; none where executors find who they are by themselves, or where a role is
    assumed."""
    return {f"fs.s3a.{name}": text for name, text in _keys(settings, "access.key", "secret.key", "session.token")}


def file_io_keys(settings: Settings) -> dict[str, str]:
    """The same as properties of Iceberg's S3FileIO."""
    names = ("access-key-id", "secret-access-key", "session-token")
    return {f"s3.{name}": text for name, text in _keys(settings, *names)}


def _keys(settings: Settings, *names: str) -> list[tuple[str, str]]:
    if settings.s3_role_arn:
        return []
    found = (settings.s3_access_key, settings.s3_secret_key, settings.s3_session_token)
    return [(name, item.get_secret_value()) for name, item in zip(names, found, strict=True) if item]


def require_usable(settings: Settings) -> None:
    """Raises ConfigError where executors of a cluster can't have the identity: Iceberg's client there finds keys for a
    role in its environment only."""
    if settings.s3_role_arn and settings.s3_access_key and not is_local(settings.spark_master):
        raise ConfigError(
            "keys that assume a role don't reach a cluster's executors",
            expected="keys without a role, or a role that the machines' own identity assumes",
            found=f"TIDEMARK_S3_ACCESS_KEY and TIDEMARK_S3_ROLE_ARN with master {settings.spark_master}",
            hint="Leave out one of them",
        )


def s3_variables(settings: Settings) -> dict[str, str]:
    """The environment of a JVM that uses ``s3_conf``, and of the processes that it starts. It has the keys."""
    if not settings.s3_access_key:
        return _open_variables(settings)
    return {
        **_open_variables(settings),
        "AWS_ACCESS_KEY_ID": settings.s3_access_key.get_secret_value(),
        "AWS_SECRET_ACCESS_KEY": settings.s3_secret_key.get_secret_value(),
        "AWS_SESSION_TOKEN": settings.s3_session_token.get_secret_value(),
    }


def _open_variables(settings: Settings) -> dict[str, str]:
    """The variables that hold no secret. Empty counts as unset: it replaces what the process inherited."""
    found = {"AWS_REGION": settings.s3_region}
    if settings.s3_access_key and not settings.s3_session_token:
        found["AWS_SESSION_TOKEN"] = ""  # the one of another login would be sent with these keys
    if settings.s3_profile:
        found["AWS_PROFILE"] = settings.s3_profile
    if settings.s3_profile and settings.s3_role_arn:
        # Iceberg assumes the role with what it finds, and it would find these before the profile.
        found |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_WEB_IDENTITY_TOKEN_FILE": ""}
    if settings.s3_sts_endpoint:  # S3A's own property takes no URL, and S3FileIO has none
        found["AWS_ENDPOINT_URL_STS"] = settings.s3_sts_endpoint
    return found


def _from_hadoop(settings: Settings) -> str | None:
    """S3A's class for ``s3a_keys``. Until they are set, as for an event log, the driver's environment counts."""
    if not s3a_keys(settings):
        return None
    return f"org.apache.hadoop.fs.s3a.{'Temporary' if settings.s3_session_token else 'Simple'}AWSCredentialsProvider"


def _s3a(settings: Settings) -> dict[str, str]:
    conf = {
        "aws.credentials.provider": ",".join(filter(None, (_from_hadoop(settings), own_provider(settings)))),
        "endpoint.region": settings.s3_region,
        "path.style.access": str(path_style(settings)).lower(),
    }
    if settings.s3_role_arn:
        conf |= {
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
            "assumed.role.credentials.provider": own_provider(settings),
            "assumed.role.arn": settings.s3_role_arn,
            "assumed.role.session.name": ROLE_SESSION,
        }
        if settings.s3_external_id:
            conf["assumed.role.external.id"] = settings.s3_external_id
    if settings.s3_endpoint:
        conf |= {
            "endpoint": settings.s3_endpoint,
            "connection.ssl.enabled": str(settings.s3_endpoint.startswith("https")).lower(),
        }
    if settings.s3_proxy:
        proxy = urlsplit(settings.s3_proxy)
        secured = proxy.scheme == "https"
        conf |= {
            "proxy.host": proxy.hostname or "",
            "proxy.port": str(proxy.port or (443 if secured else 80)),
            "proxy.ssl.enabled": str(secured).lower(),
        }
    if settings.s3_requester_pays:
        conf["requester.pays.enabled"] = "true"
    if settings.s3_encryption:
        conf["encryption.algorithm"] = _SSE[settings.s3_encryption][0]
        if settings.s3_kms_key:
            conf["encryption.key"] = settings.s3_kms_key
    return conf


def file_io_properties(settings: Settings) -> dict[str, str]:
    """Properties of Iceberg's S3FileIO, beside ``file_io_keys``. Without those it finds keys as AWS's clients do."""
    conf = {"client.region": settings.s3_region, "s3.path-style-access": str(path_style(settings)).lower()}
    if settings.s3_role_arn:
        conf |= {
            "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
            "client.assume-role.arn": settings.s3_role_arn,
            "client.assume-role.region": settings.s3_region,
            "client.assume-role.session-name": ROLE_SESSION,
        }
        if settings.s3_external_id:
            conf["client.assume-role.external-id"] = settings.s3_external_id
    elif not settings.s3_access_key:  # a provider would win over ``file_io_keys``
        conf["client.credentials-provider"] = own_provider(settings)
    if settings.s3_endpoint:
        conf["s3.endpoint"] = settings.s3_endpoint
    if settings.s3_proxy:
        conf["http-client.proxy-endpoint"] = settings.s3_proxy
    if settings.s3_encryption:
        conf["s3.sse.type"] = _SSE[settings.s3_encryption][1]
        if settings.s3_kms_key:
            conf["s3.sse.key"] = settings.s3_kms_key
    return conf
