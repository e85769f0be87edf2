"""Permissions of a cluster's users, granted and removed one by one."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # as in its docs
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tidemark.core.errors import StackError
from tidemark.kafka.acls import Acl

TIMEOUT_S = 30
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Alter": AclOperation.ALTER,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def grant(admin: AdminClient, user: str, acls: Iterable[Acl]) -> None:
    """Grant the user these permissions, and return when the broker applies them. Raises StackError."""
    wanted = [_binding(user, item) for item in acls]
    _change(lambda: admin.create_acls(wanted).values() if wanted else ())
    _await(admin, user, lambda there: there >= set(wanted))


def revoke(admin: AdminClient, user: str, acls: Iterable[Acl]) -> None:
    """Take these permissions from the user, and return when the broker refuses them. Raises StackError."""
    unwanted = [_binding(user, item) for item in acls]
    filters = [
        AclBindingFilter(
            item.restype,
            item.name,
            item.resource_pattern_type,
            item.principal,
            item.host,
            item.operation,
            item.permission_type,
        )
        for item in unwanted
    ]
    _change(lambda: admin.delete_acls(filters).values() if filters else ())
    _await(admin, user, lambda there: there.isdisjoint(unwanted))


def _binding(user: str, acl: Acl) -> AclBinding:
    return AclBinding(
        _RESOURCES[acl.resource],
        acl.name,
        ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[acl.operation],
        AclPermissionType.ALLOW,
    )


def _change(start: Callable[[], Iterable[Any]]) -> None:
    try:
        for done in start():
            done.result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise StackError("Kafka could not change permissions", found=error) from error


def _await(admin: AdminClient, user: str, is_done: Callable[[set[AclBinding]], bool]) -> None:
    """Wait until the broker knows: it learns of a change a moment after it confirmed it."""
    every = AclBindingFilter(
        ResourceType.ANY,
        None,  # type: ignore[arg-type]  # any name
        ResourcePatternType.ANY,
        f"User:{user}",
        None,  # type: ignore[arg-type]  # any host
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while not is_done(set(admin.describe_acls(every).result(TIMEOUT_S))):
            if time.monotonic() > deadline:
                raise StackError("Kafka does not show changed permissions", where=f"User:{user}")
            time.sleep(0.02)
    except (KafkaException, TimeoutError) as error:
        raise StackError("Kafka could not list permissions", found=error, where=f"User:{user}") from error
