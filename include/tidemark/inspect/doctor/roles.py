"""What each role uses. A role is one identity: the user and the keys with which a part of the platform runs."""

from tidemark.kafka.acls import ROLES, Role

__all__ = ["ROLES", "Role"]

KAFKA = "Kafka"
LIVE_KAFKA = "Kafka (live)"
S3 = "S3"
CATALOG = "catalog"
MACHINE = "machine"
SETTINGS = "settings"

# Who commits to tables, and who only reads them.
WRITES_TABLES: frozenset[Role] = frozenset({"reconcile", "maintenance"})
READS_TABLES: frozenset[Role] = WRITES_TABLES | {"reader"}
USES_KAFKA: frozenset[Role] = frozenset({"archive", "speed", "replay", "reconcile", "reader"})
USES_LIVE_KAFKA: frozenset[Role] = frozenset({"speed", "replay", "reconcile", "reader"})
