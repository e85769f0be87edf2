"""``tidemark acls``: the commands that grant the permissions each role needs in Kafka."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tidemark.cli.connect import connect
from tidemark.cli.json_output import print_result
from tidemark.cli.output import open_console, plain
from tidemark.core.errors import RequestError
from tidemark.definitions.stream import load_stream
from tidemark.kafka.acls import ROLES, Role, acls


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The command that grants one permission, and what fails without it."""

    role: Role
    command: str
    purpose: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsResult:
    """The permissions of every role that was asked for. A role without any needs nothing in Kafka."""

    stream: str
    roles: tuple[Role, ...]
    permissions: tuple[Permission, ...]


def print_acls(stack: str | None, name: str, roles: Sequence[str], *, principal: str | None, as_json: bool) -> None:
    """Print a command of Kafka's own tool per permission; without a principal, those of a user per role."""
    if unknown := [role for role in roles if role not in ROLES]:
        raise RequestError("there is no such role", expected=f"one of {', '.join(ROLES)}", found=", ".join(unknown))
    settings = connect(stack)
    stream = load_stream(name, settings.streams_dir)
    servers = {"source": settings.kafka.servers, "live": settings.speed_kafka.servers}
    wanted = tuple(cast("Sequence[Role]", roles or ROLES))
    found = {
        role: [
            Permission(
                role=role,
                command=item.command(servers[item.cluster], principal or f"User:{role}"),
                purpose=item.purpose,
            )
            for item in acls(role, stream, settings)
        ]
        for role in wanted
    }
    if as_json:
        every = tuple(item for items in found.values() for item in items)
        print_result("acls", AclsResult(stream=name, roles=wanted, permissions=every))
        return
    console = open_console()
    for role, items in found.items():
        console.print(plain(f"# {role}" if items else f"# {role} needs nothing in Kafka"))
        for item in items:
            console.print(plain(f"{item.command}  # {item.purpose}"))
