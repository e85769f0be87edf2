"""``tidemark acls``: the commands that grant the permissions each role needs in Kafka."""

from collections.abc import Sequence
from typing import cast

from tidemark.cli.connect import connect
from tidemark.cli.output import open_console, plain
from tidemark.core.errors import RequestError
from tidemark.definitions.stream import load_stream
from tidemark.kafka.acls import ROLES, Role, acls


def print_acls(stack: str | None, name: str, roles: Sequence[str], *, principal: str | None) -> None:
    """Print a command of Kafka's own tool per permission; without a principal, those of a user per role."""
    if unknown := [role for role in roles if role not in ROLES]:
        raise RequestError("there is no such role", expected=f"one of {', '.join(ROLES)}", found=", ".join(unknown))
    settings = connect(stack)
    stream = load_stream(name, settings.streams_dir)
    servers = {"source": settings.kafka.servers, "live": settings.speed_kafka.servers}
    console = open_console()
    for role in cast("Sequence[Role]", roles or ROLES):
        found = acls(role, stream, settings)
        console.print(plain(f"# {role}" if found else f"# {role} needs nothing in Kafka"))
        for item in found:
            console.print(
                plain(f"{item.command(servers[item.cluster], principal or f'User:{role}')}  # {item.purpose}")
            )
