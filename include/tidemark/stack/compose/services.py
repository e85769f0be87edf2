"""Names, ports and paths of the services in docker-compose.yaml, and the users of Kafka."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tidemark.kafka.acls import Role
from tidemark.stack.certificates import Certificate
from tidemark.stack.kafka import server_defaults
from tidemark.stack.kafka_security import BrokerSecurity, server_properties

BROKERS = {1: "kafka-1", 2: "kafka-2", 3: "kafka-3"}
SCRAM_PORT, PLAIN_PORT, CONTROLLER_PORT = 9092, 9093, 9094
S3_HOST, S3_PORT = "s3", 8443
POSTGRES_HOST = "postgres"
CATALOG_DATABASE, AIRFLOW_DATABASE = "tidemark", "airflow"
# Users with the roles that they have in Kafka; one Airflow runs the DAGs of several roles.
USERS: Mapping[str, tuple[Role, ...]] = {
    "archive": ("archive",),
    "speed": ("speed",),
    "airflow": ("reconcile", "replay", "maintenance"),
}
# Where containers have their secrets.
MOUNTED = PurePosixPath("/run/secrets")
CA = MOUNTED / "ca"
MAX_PUT_BYTES = 256 * 1024 * 1024


def broker_properties(node: int, passwords: Mapping[str, str]) -> dict[str, str]:
    """The properties of one of the three Kafka nodes. ``passwords`` are those of PLAIN, which only brokers use."""
    host, store = BROKERS[node], Path(MOUNTED / "store")
    security = BrokerSecurity(
        # It reads only the store and the authority.
        certificate=Certificate(certificate=store, key=store, store=store, ca=Path(CA)),
        passwords=passwords,
        plain_port=PLAIN_PORT,
    )
    return {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "listeners": f"SCRAM://:{SCRAM_PORT},PLAIN://:{PLAIN_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"SCRAM://{host}:{SCRAM_PORT},PLAIN://{host}:{PLAIN_PORT}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for number, name in BROKERS.items()),
        **server_properties(security),
        "log.dirs": "/data/kafka",
        "default.replication.factor": str(len(BROKERS)),
        **server_defaults(len(BROKERS)),
    }


def s3_properties(access_key: str, secret_key: str, store_password: str) -> dict[str, str]:
    """The properties of the S3 server."""
    return {
        "s3proxy.secure-endpoint": f"https://0.0.0.0:{S3_PORT}",
        "s3proxy.keystore-path": str(MOUNTED / "store"),
        "s3proxy.keystore-password": store_password,
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": access_key,
        "s3proxy.credential": secret_key,
        "s3proxy.v4-max-non-chunked-request-size": str(MAX_PUT_BYTES),
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "unused",
        "jclouds.credential": "unused",
        "jclouds.filesystem.basedir": "/data/buckets",
    }
