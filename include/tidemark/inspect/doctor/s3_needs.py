"""The actions in S3 that the roles need, from their policies: each action on each resource, to be tried one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.connections.policies import role_policy
from tidemark.inspect.doctor.roles import Role
from tidemark.settings import Settings

_ARN = "arn:aws:s3:::"
# A wildcard stands for this name in what is tried.
PROBE = "doctor"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Need:
    """Actions on one resource of a policy, with the roles that need each.

    ``resource`` is the policy's, or a prefix that its condition allows to list. ``key`` is a key, or a prefix to list,
    that it includes; empty for the bucket and for a KMS key.
    """

    name: str
    resource: str
    key: str
    roles: dict[str, list[Role]] = field(default_factory=dict)

    @property
    def is_key(self) -> bool:
        """Whether the resource is a KMS key."""
        return not self.resource.startswith(_ARN)


def s3_needs(settings: Settings, roles: Sequence[Role]) -> tuple[S3Need, ...]:
    """What the roles need together, each resource once."""
    found: dict[str, S3Need] = {}
    kms_key = settings.s3_kms_key if settings.s3_encryption == "aws:kms" else None
    for role in roles:
        policy = role_policy(
            role, bucket=settings.bucket, prefix=settings.prefix, tables=tables_folder(settings), kms_key=kms_key or ""
        )
        for action, need in _parts(policy, settings.bucket):
            names = found.setdefault(need.name, need).roles.setdefault(action, [])
            if role not in names:
                names.append(role)
    return tuple(found.values())


def tables_folder(settings: Settings) -> str:
    """The folder of the tables, without a slash at its end: the archive's warehouse, or what the settings name.

    The policies know one bucket. In another one, only the commit to the doctor's own table is tried.
    """
    own = f"s3://{settings.bucket}"
    location = settings.table_location
    place = location if f"{location}/".startswith(f"{own}/") else settings.warehouse
    return place.removeprefix(own).removeprefix("/").rstrip("/")


def writable(needs: Sequence[S3Need]) -> S3Need | None:
    """A resource where the roles may write objects and delete them; None if there is none.

    The folder of the data objects comes last: others list it.
    """
    wanted = {"s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"}
    found = [need for need in needs if need.name.endswith("*") and wanted <= need.roles.keys()]
    return min(found, key=lambda need: need.name.endswith("data/*"), default=None)


def _parts(policy: Mapping[str, Any], bucket: str) -> Iterator[tuple[str, S3Need]]:
    for statement in policy["Statement"]:
        if statement["Effect"] != "Allow":
            continue
        for resource in _list(statement["Resource"]):
            for need in _needs(resource, statement.get("Condition", {}), bucket):
                for action in _list(statement["Action"]):
                    yield action, need


def _needs(resource: str, condition: Mapping[str, Any], bucket: str) -> Iterator[S3Need]:
    if not resource.startswith(_ARN):
        yield S3Need(name=f"KMS key {resource}", resource=resource, key="")
        return
    _, _, pattern = resource.removeprefix(_ARN).partition("/")
    if pattern:
        yield S3Need(name=pattern, resource=resource, key=pattern.replace("*", PROBE))
        return
    prefixes = [
        value
        for keys in condition.values()
        for key, values in keys.items()
        if key == "s3:prefix"
        for value in _list(values)
    ]
    for prefix in prefixes:
        yield S3Need(name=f"listing of {prefix}", resource=resource, key=prefix.replace("*", PROBE))
    if not prefixes:
        yield S3Need(name=f"bucket {bucket}", resource=resource, key="")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
