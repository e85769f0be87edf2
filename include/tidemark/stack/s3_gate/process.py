"""The gate as a process of the local stack, with the policies of roles for its users."""

import secrets
import ssl
import sys
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from types import MappingProxyType

from tidemark.connections.policies import ROLES, role_policy
from tidemark.settings import Settings
from tidemark.stack.certificates import Certificate
from tidemark.stack.processes import Managed, Processes
from tidemark.stack.s3_gate.config import GateConfig, GateUser

READY_S = 30
# The set-up's own user: it may do everything, as the owner of a bucket.
ADMIN = "admin"
_BY_ROLE = MappingProxyType({role: (role,) for role in ROLES})
_ALL = {"Sid": "All", "Effect": "Allow", "Action": ["s3:*", "kms:*"], "Resource": "*"}


def stack_config(
    file: Path,
    *,
    port: int,
    certificate: Certificate,
    upstream: Settings,
    prefix: str = "",
    kms_key: str = "",
    roles: Mapping[str, Sequence[str]] = _BY_ROLE,
) -> GateConfig:
    """The configuration of a gate before the server of ``upstream``, for its bucket.

    Its users are ``ADMIN`` and those of ``roles``, each with the policies of its roles. Their keys, and the sessions of
    roles, stay what they are if ``file`` is an earlier start's. Raises what ``GateConfig.read`` raises for a file that
    is none.
    """
    before = GateConfig.read(file) if file.exists() else None
    known = {user.name: (user.access_key, user.secret_key) for user in (before.users if before else ())}
    policies = {ADMIN: [{"Version": "2012-10-17", "Statement": [_ALL]}]}
    for name, names in roles.items():
        policies[name] = [role_policy(role, bucket=upstream.bucket, prefix=prefix, kms_key=kms_key) for role in names]
    users = []
    for name, of_user in policies.items():
        access_key, secret_key = known.get(name) or (f"AKIA{secrets.token_hex(8).upper()}", secrets.token_hex(20))
        users.append(GateUser(name=name, access_key=access_key, secret_key=secret_key, policies=of_user))
    return GateConfig(
        port=port,
        certificate=str(certificate.certificate),
        key=str(certificate.key),
        upstream=upstream.s3_endpoint or "",
        upstream_access_key=upstream.s3_access_key.get_secret_value(),
        upstream_secret_key=upstream.s3_secret_key.get_secret_value(),
        token_key=before.token_key if before else secrets.token_hex(20),
        users=users,
    )


def start_s3_gate(processes: Processes, file: Path, *, config: GateConfig, ca: Path, log: Path) -> Managed:
    """Write the configuration to ``file`` and start the gate with it; ``ca`` is what clients trust."""
    config.write(file)
    return processes.start(
        "s3-gate",
        [sys.executable, "-m", "tidemark.stack.s3_gate.server", str(file)],
        env={},
        ready=lambda: _answers(config.port, ca),
        timeout_s=READY_S,
        log=log,
        essential=True,
    )


def _answers(port: int, ca: Path) -> bool:
    """Whether it refuses a request without a signature."""
    connection = HTTPSConnection("127.0.0.1", port, timeout=5, context=ssl.create_default_context(cafile=str(ca)))
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 403
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
