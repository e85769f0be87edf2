"""A gate before the stack's S3 server, for a test."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.stack.certificates import server_certificate
from tidemark.stack.files import free_ports
from tidemark.stack.processes import Managed, Processes
from tidemark.stack.s3_gate.config import GateConfig, GateRole, GateUser
from tidemark.stack.s3_gate.process import stack_config, start_s3_gate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

Policy = Mapping[str, Any]
EVERYTHING: Policy = {
    "Version": "2012-10-17",
    "Statement": [{"Sid": "All", "Effect": "Allow", "Action": ["s3:*", "kms:*"], "Resource": "*"}],
}


@dataclass(kw_only=True)
class Gate:
    """A running gate. ``configure`` changes what it knows."""

    settings: Settings
    config: GateConfig
    file: Path
    ca: Path
    process: Managed

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.config.port}"

    def configure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        self.config.write(self.file)

    def client(self, name: str, service: str = "s3", **changes: Any) -> Any:
        """A client of boto3 with the user's keys; ``changes`` are arguments of boto3's."""
        user = self.config.user(name)
        arguments = {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "verify": str(self.ca),
            "aws_access_key_id": user.access_key,
            "aws_secret_access_key": user.secret_key,
            "config": Config(
                retries={"total_max_attempts": 1},
                s3={"addressing_style": "path", "payload_signing_enabled": True},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        }
        return boto3.client(service, **{**arguments, **changes})  # type: ignore[call-overload]  # any service

    def store(self, name: str, **changes: Any) -> ObjectStore:
        client: S3Client = self.client(name, **changes)
        return ObjectStore(self.settings, client)


@contextmanager
def gate(
    settings: Settings,
    folder: Path,
    *,
    users: Mapping[str, Sequence[Policy]] | None = None,
    prefix: str = "",
    roles: Sequence[GateRole] = (),
) -> Iterator[Gate]:
    """A gate before the server of ``settings``; without ``users``, with those of the local stack."""
    (port,) = free_ports(1)
    certificate, file = server_certificate(folder / "tls"), folder / "gate.json"
    config = stack_config(file, port=port, certificate=certificate, upstream=settings, prefix=prefix)
    if users is not None:
        given = [
            GateUser(name=name, access_key=f"AKIA{name.upper()}", secret_key=secrets.token_hex(20), policies=policies)
            for name, policies in users.items()
        ]
        config = replace(config, users=given, roles=roles)
    processes = Processes()
    try:
        process = start_s3_gate(processes, file, config=config, ca=certificate.ca, log=folder / "gate.log")
        yield Gate(settings=settings, config=config, file=file, ca=certificate.ca, process=process)
    finally:
        processes.stop(grace_s=5)
