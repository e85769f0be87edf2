"""The secured form of a local stack: TLS, a user per role with the least rights, encryption, a REST catalog.

Kafka asks for SCRAM passwords and knows ACLs. A gate before the S3 server checks signatures and policies, and
every object is encrypted with a key. ``secrets.json`` and ``s3_gate.json`` (mode 600) keep passwords and keys over
restarts.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tidemark.definitions.stream import Stream
from tidemark.kafka.acls import ROLES, Acl, Role, acls
from tidemark.settings import Settings
from tidemark.stack.acls import grant
from tidemark.stack.certificates import server_certificate
from tidemark.stack.files import write_private
from tidemark.stack.kafka_security import ADMIN, BrokerSecurity
from tidemark.stack.processes import Processes
from tidemark.stack.rest_catalog import rest_catalog_uri, start_rest_catalog
from tidemark.stack.s3_gate.process import stack_config, start_s3_gate

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Passwords in Kafka by user, and the key of the S3 server, which only the gate uses."""

    kafka: Mapping[str, str]
    upstream: tuple[str, str]

    @classmethod
    def kept(cls, path: Path) -> "Secrets":
        """Those of the file; new ones if there is none."""
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
        else:
            found = {
                "kafka": {user: secrets.token_hex(16) for user in (ADMIN, *USERS)},
                "upstream": (secrets.token_hex(10), secrets.token_hex(20)),
            }
            write_private(path, json.dumps(found, indent=2) + "\n")
        return cls(**found)


class SecureServices:
    """What a secured stack in ``folder`` has beyond any other one.

    ``upstream`` are the S3 server's own settings. ``values`` are the variables that all users share.
    """

    def __init__(
        self, folder: Path, ports: Mapping[str, int], values: Mapping[str, str], known: Secrets, upstream: Settings
    ) -> None:
        self._folder, self._ports, self._values = folder, ports, values
        self._certificate = server_certificate(folder / "certificates")
        self.security = BrokerSecurity(
            certificate=self._certificate, passwords=known.kafka, plain_port=ports["kafka_plain"]
        )
        self._gate = stack_config(
            folder / "s3_gate.json",
            port=ports["s3_gate"],
            certificate=self._certificate,
            upstream=upstream,
            prefix=upstream.prefix,
            kms_key=KMS_KEY,
            roles=USERS,
        )

    def variables(self, user: str) -> dict[str, str]:
        """The variables of a user's settings."""
        ca = str(self._certificate.ca)
        kafka = self.security.scram(self._ports["kafka"], user)
        of_user = self._gate.user(user)
        return {
            **self._values,
            "TIDEMARK_KAFKA_BOOTSTRAP": kafka.servers,
            "TIDEMARK_KAFKA_PROPERTIES": json.dumps(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-512",
                    "sasl.username": user,
                    "sasl.password": self.security.passwords[user],
                    "ssl.ca.location": ca,
                }
            ),
            "TIDEMARK_S3_ENDPOINT": f"https://127.0.0.1:{self._ports['s3_gate']}",
            "TIDEMARK_S3_ACCESS_KEY": of_user.access_key,
            "TIDEMARK_S3_SECRET_KEY": of_user.secret_key,
            "TIDEMARK_S3_CA_BUNDLE": ca,
            "TIDEMARK_S3_ENCRYPTION": "aws:kms",
            "TIDEMARK_S3_KMS_KEY": KMS_KEY,
            "TIDEMARK_CATALOG_TYPE": "rest",
            "TIDEMARK_CATALOG_URI": rest_catalog_uri(self._ports["catalog"], self._certificate),
            "TIDEMARK_CATALOG_PROPERTIES": json.dumps({"pyiceberg.ssl.cabundle": ca}),
        }

    def start(self, processes: Processes, *, jars: Path, logs: Path, catalog: Settings) -> None:
        """Start the gate and the catalog. ``catalog`` are the settings of the user ``CATALOG``."""
        start_s3_gate(
            processes,
            self._folder / "s3_gate.json",
            config=self._gate,
            ca=self._certificate.ca,
            log=logs / "s3-gate.log",
        )
        start_rest_catalog(
            processes,
            self._folder / "catalog",
            jars=jars,
            log=logs / "rest-catalog.log",
            port=self._ports["catalog"],
            settings=catalog,
            tls=self._certificate,
        )

    def permit(self, streams: Sequence[Stream], settings: Settings) -> None:
        """Grant every user what its roles need in Kafka for these streams."""
        admin = AdminClient(self.security.plain(ADMIN).client({"log_level": 0}))
        for user, roles in USERS.items():
            wanted: dict[Acl, None] = {}
            for stream in streams:
                for role in roles:
                    wanted |= dict.fromkeys(acls(role, stream, settings))
            grant(admin, user, wanted)
