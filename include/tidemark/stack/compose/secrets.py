"""``make secrets``: writes every secret of docker-compose.yaml, and the configuration that holds secrets.

``secrets/secrets.json`` has the secrets themselves. They are random, and later calls keep them. The other files are
made from it. A file that exists is not changed, so that a person may edit it. Every file is readable for its owner
only, who is the user of the containers: the caller, or for root the user 1000.
"""

import json
import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dotenv import dotenv_values

from tidemark.installation import PROJECT
from tidemark.stack.certificates import host_certificate, key_store
from tidemark.stack.compose.services import (
    AIRFLOW_DATABASE,
    BROKERS,
    CA,
    CATALOG_DATABASE,
    POSTGRES_HOST,
    S3_HOST,
    USERS,
    broker_properties,
    s3_properties,
)
from tidemark.stack.files import env_text, properties_text, write_private
from tidemark.stack.kafka import new_cluster_id
from tidemark.stack.kafka_security import ADMIN

FOLDER = PROJECT / "secrets"
ENV_FILE = PROJECT / ".env"
# For root, whose files no container may own.
CONTAINER_USER = 1000
AIRFLOW_USER = "admin"
_HOSTS = (*BROKERS.values(), S3_HOST, POSTGRES_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeSecrets:
    """Passwords by user of Kafka and of PostgreSQL, the key of S3, and what each service keeps secret."""

    kafka: Mapping[str, str]
    postgres: Mapping[str, str]
    s3: tuple[str, str]
    s3_store: str
    spark: str
    airflow: Mapping[str, str]
    grafana: str

    @classmethod
    def kept(cls, path: Path) -> Self:
        """Those of the file; new ones if there is none."""
        if path.exists():
            return cls.read(path)
        found = {
            "kafka": {user: secrets.token_hex(16) for user in (ADMIN, *USERS)},
            "postgres": {user: secrets.token_hex(16) for user in ("postgres", CATALOG_DATABASE, AIRFLOW_DATABASE)},
            "s3": (secrets.token_hex(10), secrets.token_hex(20)),
            "s3_store": secrets.token_hex(16),
            "spark": secrets.token_hex(32),
            "airflow": {
                "fernet_key": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
                "secret_key": secrets.token_hex(32),
                "jwt_secret": secrets.token_hex(64),
                "password": secrets.token_urlsafe(12),
            },
            "grafana": secrets.token_urlsafe(12),
        }
        write_private(path, json.dumps(found, indent=2) + "\n")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Those of the file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def write_secrets(folder: Path, env_file: Path) -> list[Path]:
    """Write what is missing, and return its paths."""
    uid, gid = os.getuid() or CONTAINER_USER, os.getgid() or CONTAINER_USER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = set(folder.rglob("*"))
    found = ComposeSecrets.kept(folder / "secrets.json")
    certificates = {host: host_certificate(folder / "certificates", host) for host in _HOSTS}
    texts = _texts(found)
    store, s3 = folder / "s3.p12", certificates[S3_HOST]
    if not store.exists() or store.stat().st_mtime < s3.certificate.stat().st_mtime:  # it was renewed
        write_private(store, key_store(s3, found.s3_store))
    for name, text in texts.items():
        if not (folder / name).exists():
            write_private(folder / name, text)
    added = _add_variables(
        env_file,
        {"CONTAINER_UID": str(uid), "CONTAINER_GID": str(gid), "KAFKA_CLUSTER_ID": new_cluster_id()},
    )
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid)
    return sorted({path for path in folder.rglob("*") if path.is_file()} - before) + added


def _texts(found: ComposeSecrets) -> dict[str, str]:
    """The files by name."""
    inner = {ADMIN: found.kafka[ADMIN]}
    return {
        **{f"{host}.properties": properties_text(broker_properties(node, inner)) for node, host in BROKERS.items()},
        "s3.properties": properties_text(s3_properties(*found.s3, found.s3_store)),
        "postgres.password": found.postgres["postgres"] + "\n",
        **{f"{user}.env": env_text(_variables(found, user)) for user in (ADMIN, *USERS)},
        "airflow.cfg": _airflow(found),
        "airflow-users.json": json.dumps({AIRFLOW_USER: found.airflow["password"]}) + "\n",
        "spark-defaults.conf": _spark(found),
        "grafana.password": found.grafana,
    }


def _variables(found: ComposeSecrets, user: str) -> dict[str, str]:
    """The settings of a user that are secret; docker-compose.yaml has the others."""
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": found.kafka[user],
        "ssl.ca.location": str(CA),
    }
    catalog = {"jdbc.user": CATALOG_DATABASE, "jdbc.password": found.postgres[CATALOG_DATABASE]}
    access_key, secret_key = found.s3
    return {
        "TIDEMARK_KAFKA_PROPERTIES": json.dumps(kafka),
        "TIDEMARK_S3_ACCESS_KEY": access_key,
        "TIDEMARK_S3_SECRET_KEY": secret_key,
        # The streams do not use the catalog.
        **({} if user in ("archive", "speed") else {"TIDEMARK_CATALOG_PROPERTIES": json.dumps(catalog)}),
    }


def _airflow(found: ComposeSecrets) -> str:
    """Airflow's configuration, except for what docker-compose.yaml sets in variables."""
    password, database = found.postgres[AIRFLOW_DATABASE], AIRFLOW_DATABASE
    return f"""\
[core]
fernet_key = {found.airflow["fernet_key"]}

[database]
sql_alchemy_conn = postgresql+psycopg2://{database}:{password}@{POSTGRES_HOST}:5432/{database}

[api]
secret_key = {found.airflow["secret_key"]}

[api_auth]
jwt_secret = {found.airflow["jwt_secret"]}
"""


def _spark(found: ComposeSecrets) -> str:
    """Spark's own security, for master, workers and every application, and where the master keeps what it knows."""
    return f"""\
spark.authenticate                       true
spark.authenticate.secret                {found.spark}
spark.network.crypto.enabled             true
spark.network.crypto.authEngineVersion   2
spark.network.crypto.saslFallback        false
spark.io.encryption.enabled              true
spark.deploy.recoveryMode                FILESYSTEM
spark.deploy.recoveryDirectory           /work/recovery
"""


def _add_variables(path: Path, variables: Mapping[str, str]) -> list[Path]:
    """Add the missing variables to the file that Docker Compose reads, and return the file if there were any."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = {name: value for name, value in variables.items() if name not in dotenv_values(path)}
    if not missing:
        return []
    gap = "" if text.endswith("\n") or not text else "\n"
    path.write_text(text + gap + "".join(f"{name}={value}\n" for name, value in missing.items()), encoding="utf-8")
    return [path]


def main() -> None:
    """Write the secrets of this folder's docker-compose.yaml, and say what was written."""
    written = write_secrets(FOLDER, ENV_FILE)
    for path in written:
        print(path.relative_to(PROJECT))  # noqa: T201 - the command's answer
    if not written:
        print("Every secret exists already; nothing was changed.", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
