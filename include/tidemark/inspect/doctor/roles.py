"""What each role uses. A role is one identity: the user and the keys with which a part of the platform runs."""

from collections.abc import Sequence
from typing import Literal, get_args

from tidemark.kafka import acls

Role = Literal["archive", "speed", "reconcile", "reader", "maintenance"]
ROLES: tuple[Role, ...] = get_args(Role)

KAFKA = "Kafka"
LIVE_KAFKA = "Kafka (live)"
S3 = "S3"
CATALOG = "catalog"
MACHINE = "machine"
SETTINGS = "settings"

# Who commits to tables, and who only reads them.
WRITES_TABLES: frozenset[Role] = frozenset({"reconcile", "maintenance"})
READS_TABLES: frozenset[Role] = WRITES_TABLES | {"reader"}
USES_KAFKA: frozenset[Role] = frozenset({"archive", "speed", "reconcile", "reader"})
USES_LIVE_KAFKA: frozenset[Role] = frozenset({"speed", "reader"})


def kafka_roles(roles: Sequence[Role]) -> tuple[acls.Role, ...]:
    """Kafka's roles for these: whoever runs the speed layer also replays dead letters."""
    found: list[acls.Role] = []
    for role in roles:
        found += ["speed", "replay"] if role == "speed" else [role]
    return tuple(found)
