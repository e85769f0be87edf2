"""The secured form of a local stack: TLS, a user per role with the least rights, encryption, a REST catalog.

Kafka asks for SCRAM passwords and knows ACLs. A gate before the S3 server checks signatures and policies, and
every object is encrypted with a key. ``secrets.json`` (mode 600) keeps passwords and keys over restarts.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from tidemark.connections.policies import role_policy
from tidemark.definitions.stream import Stream
from tidemark.kafka.acls import ROLES, Acl, Role, acls
from tidemark.s3 import ensure_bucket
from tidemark.settings import Settings
from tidemark.stack.acls import grant
from tidemark.stack.certificates import Certificate, server_certificate
from tidemark.stack.files import write_private
from tidemark.stack.kafka import Node, start_kafka
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Processes
from tidemark.stack.rest_catalog import ServerTls, rest_catalog_uri, start_rest_catalog
from tidemark.stack.s3_gate.config import GateConfig, GateUser
from tidemark.stack.s3_gate.process import start_s3_gate
from tidemark.stack.s3proxy import start_s3proxy

# One Airflow runs the DAGs of several roles.
AIRFLOW = "airflow"
CATALOG = "catalog"
USERS: Mapping[str, tuple[Role, ...]] = {
    **{role: (role,) for role in ROLES},
    AIRFLOW: ("reconcile", "replay", "maintenance"),
    CATALOG: ("reconcile", "maintenance"),
}
PORTS = ("kafka", "controller", "s3", "s3_gate", "kafka_plain", "catalog")
KMS_KEY = "arn:aws:kms:us-east-1:000000000000:key/tidemark-local"
_EVERYTHING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Passwords in Kafka, keys in S3 by user, and what signs the gate's sessions."""

    kafka: Mapping[str, str]
    s3: Mapping[str, tuple[str, str]]
    upstream: tuple[str, str]
    token_key: str

    @classmethod
    def kept(cls, path: Path) -> "Secrets":
        """Those of the file; new ones if there is none."""
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            users = (ADMIN, *USERS)
            found = {
                "kafka": {user: secrets.token_hex(16) for user in users},
                "s3": {user: _key() for user in users},
                "upstream": _key(),
                "token_key": secrets.token_hex(32),
            }
            write_private(path, json.dumps(found, indent=2) + "\n")
        return cls(**found)


def _key() -> tuple[str, str]:
    return secrets.token_hex(10), secrets.token_hex(20)


class SecureServices:
    """The servers of one secured stack in ``folder``. ``values`` are the variables that all users share."""

    def __init__(self, folder: Path, ports: Mapping[str, int], values: Mapping[str, str]) -> None:
        self._folder, self._ports, self._values = folder, ports, values
        self._secrets = Secrets.kept(folder / "secrets.json")
        self._certificate = server_certificate(folder / "certificates")
        self._security = BrokerSecurity(
            certificate=self._certificate, passwords=self._secrets.kafka, plain_port=ports["kafka_plain"]
        )

    def variables(self, user: str) -> dict[str, str]:
        """The variables of a user's settings."""
        ca = str(self._certificate.ca)
        kafka = self._security.scram(self._ports["kafka"], user)
        access_key, secret_key = self._secrets.s3[user]
        return {
            **self._values,
            "TIDEMARK_KAFKA_BOOTSTRAP": kafka.servers,
            "TIDEMARK_KAFKA_PROPERTIES": json.dumps(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": user,
                    "sasl.password": self._secrets.kafka[user],
                    "ssl.ca.location": ca,
                }
            ),
            "TIDEMARK_S3_ENDPOINT": f"https://127.0.0.1:{self._ports['s3_gate']}",
            "TIDEMARK_S3_ACCESS_KEY": access_key,
            "TIDEMARK_S3_SECRET_KEY": secret_key,
            "TIDEMARK_S3_CA_BUNDLE": ca,
            "TIDEMARK_S3_ENCRYPTION": "aws:kms",
            "TIDEMARK_S3_KMS_KEY": KMS_KEY,
            "TIDEMARK_CATALOG_TYPE": "rest",
            "TIDEMARK_CATALOG_URI": rest_catalog_uri(self._ports["catalog"], self._tls),
            "TIDEMARK_CATALOG_PROPERTIES": json.dumps({"pyiceberg.ssl.cabundle": ca}),
        }

    def start(self, processes: Processes, *, jars: Path, logs: Path, upstream: Settings, catalog: Settings) -> None:
        """Start every server. ``upstream`` are the S3 server's settings, ``catalog`` those of the user ``CATALOG``."""
        ports = self._ports
        start_kafka(
            processes,
            self._folder / "kafka",
            Node(port=ports["kafka"], voters={1: ports["controller"]}, essential=True, security=self._security),
            jars=jars / "kafka",
            log=logs / "kafka.log",
        )
        start_s3proxy(
            processes,
            self._folder / "s3",
            jars=jars / "s3",
            log=logs / "s3proxy.log",
            port=ports["s3"],
            settings=upstream,
        )
        ensure_bucket(upstream)
        start_s3_gate(
            processes,
            self._folder / "s3_gate.json",
            config=self._gate(upstream),
            ca=self._certificate.ca,
            log=logs / "s3-gate.log",
        )
        start_rest_catalog(
            processes,
            self._folder / "catalog",
            jars=jars,
            log=logs / "rest-catalog.log",
            port=ports["catalog"],
            settings=catalog,
            tls=self._tls,
        )

    def upstream_variables(self) -> dict[str, str]:
        """The variables for the S3 server itself, which only the gate uses."""
        access_key, secret_key = self._secrets.upstream
        return {
            "TIDEMARK_S3_ENDPOINT": f"http://127.0.0.1:{self._ports['s3']}",
            "TIDEMARK_S3_ACCESS_KEY": access_key,
            "TIDEMARK_S3_SECRET_KEY": secret_key,
        }

    def permit(self, streams: Sequence[Stream], settings: Settings) -> None:
        """Grant every user what its roles need in Kafka for these streams."""
        admin = AdminClient(self._security.plain(ADMIN).client({"log_level": 0}))
        for user, roles in USERS.items():
            wanted: dict[Acl, None] = {}
            for stream in streams:
                for role in roles:
                    wanted |= dict.fromkeys(acls(role, stream, settings))
            grant(admin, user, wanted)

    @property
    def _tls(self) -> ServerTls:
        certificate: Certificate = self._certificate
        return ServerTls(certificate=certificate.certificate, key=certificate.key, ca=certificate.ca)

    def _gate(self, upstream: Settings) -> GateConfig:
        policies: dict[str, list[dict[str, Any]]] = {ADMIN: [_EVERYTHING]}
        for user, roles in USERS.items():
            policies[user] = [
                role_policy(role, bucket=upstream.bucket, prefix=upstream.prefix, kms_key=KMS_KEY) for role in roles
            ]
        users = [
            GateUser(name=user, access_key=access_key, secret_key=secret_key, policies=policies[user])
            for user, (access_key, secret_key) in self._secrets.s3.items()
        ]
        assert upstream.s3_endpoint is not None
        return GateConfig(
            port=self._ports["s3_gate"],
            certificate=str(self._certificate.certificate),
            key=str(self._certificate.key),
            upstream=upstream.s3_endpoint,
            upstream_access_key=upstream.s3_access_key.get_secret_value(),
            upstream_secret_key=upstream.s3_secret_key.get_secret_value(),
            token_key=self._secrets.token_key,
            users=users,
        )
