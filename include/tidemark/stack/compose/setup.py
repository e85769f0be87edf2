"""Sets up the services of docker-compose.yaml: Kafka's users, permissions and topics, the bucket, and the databases.

``secrets.json`` is mounted as the secret ``setup``, and the settings are those of Kafka's ``admin``. Another run
changes nothing but passwords that differ.
"""

import sys
from pathlib import Path

import psycopg2  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient
from psycopg2 import sql

from tidemark.core.errors import TidemarkError
from tidemark.definitions.stream import Stream, load_stream, stream_names
from tidemark.kafka.acls import Acl, acls
from tidemark.kafka.topics import ensure_topic
from tidemark.s3 import ensure_bucket
from tidemark.settings import Settings, settings
from tidemark.stack.acls import grant
from tidemark.stack.certificates import Certificate
from tidemark.stack.compose.secrets import ComposeSecrets
from tidemark.stack.compose.services import (
    AIRFLOW_DATABASE,
    BROKERS,
    CA,
    CATALOG_DATABASE,
    MOUNTED,
    PLAIN_PORT,
    POSTGRES_HOST,
    SCRAM_PORT,
    USERS,
)
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity, create_scram_users
from tidemark.stack.streams import SOURCE_PARTITIONS, SOURCE_RETENTION


def set_up(found: ComposeSecrets, connections: Settings) -> None:
    """Everything, in the order in which it is needed. Raises TidemarkError, and psycopg2's errors."""
    streams = [load_stream(name, connections.streams_dir) for name in stream_names(connections.streams_dir)]
    _set_up_kafka(found, connections, streams)
    for stream in streams:
        ensure_topic(connections.kafka, stream.topic, partitions=SOURCE_PARTITIONS, config=SOURCE_RETENTION)
    _report(f"topics: {', '.join(stream.topic for stream in streams)}")
    ensure_bucket(connections)
    _report(f"bucket: {connections.bucket}")
    for database in (CATALOG_DATABASE, AIRFLOW_DATABASE):
        _create_database(database, found)
    _report(f"databases: {CATALOG_DATABASE}, {AIRFLOW_DATABASE}")


def _set_up_kafka(found: ComposeSecrets, connections: Settings, streams: list[Stream]) -> None:
    ca = Path(CA)
    security = BrokerSecurity(
        host=BROKERS[1],
        certificate=Certificate(certificate=ca, key=ca, store=ca, ca=ca),  # a client needs the authority's alone
        passwords=found.kafka,
        plain_port=PLAIN_PORT,
    )
    create_scram_users(security, SCRAM_PORT)
    _report(f"Kafka's users: {', '.join(found.kafka)}")
    admin = AdminClient(security.plain(ADMIN).client({"log_level": 0}))
    for user, roles in USERS.items():
        wanted: dict[Acl, None] = {}
        for stream in streams:
            for role in roles:
                wanted |= dict.fromkeys(acls(role, stream, connections))
        grant(admin, user, wanted)
    _report(f"permissions of: {', '.join(USERS)}")


def _create_database(name: str, found: ComposeSecrets) -> None:
    """A database and the user of the same name that owns it."""
    connection = psycopg2.connect(
        host=POSTGRES_HOST,
        dbname="postgres",
        user="postgres",
        password=found.postgres["postgres"],
        sslmode="verify-full",
        sslrootcert=str(CA),
    )
    connection.autocommit = True
    identifier = sql.Identifier(name)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE ROLE {} LOGIN").format(identifier))
            password = sql.Literal(found.postgres[name])
            cursor.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(identifier, password))
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(identifier, identifier))
    finally:
        connection.close()


def _report(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - the container's log


if __name__ == "__main__":
    try:
        set_up(ComposeSecrets.read(Path(MOUNTED / "setup")), settings())
    except (TidemarkError, psycopg2.Error) as error:
        sys.exit(f"{type(error).__name__}: {error}")
