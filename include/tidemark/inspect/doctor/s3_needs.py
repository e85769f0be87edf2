"""The actions in S3 that each role needs, by folder below the deployment's prefix."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.inspect.doctor.roles import Role

Action = Literal[
    "s3:ListBucket",
    "s3:ListBucketMultipartUploads",
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
]
_READ: tuple[Action, ...] = ("s3:GetObject",)
_WRITE: tuple[Action, ...] = (*_READ, "s3:PutObject", "s3:AbortMultipartUpload")
_CHANGE: tuple[Action, ...] = (*_WRITE, "s3:DeleteObject")
# The whole prefix.
PREFIX = ""
DOCTOR = "doctor"
_NEEDS: dict[Role, dict[str, tuple[Action, ...]]] = {
    "archive": {
        PREFIX: ("s3:ListBucket",),
        **dict.fromkeys(("data", "manifests", "ledger", "heartbeats"), _WRITE),
        "checkpoints": _CHANGE,
    },
    "speed": {PREFIX: ("s3:ListBucket",), "heartbeats": _WRITE, "checkpoints": _CHANGE},
    "reconcile": {
        PREFIX: ("s3:ListBucket",),
        **dict.fromkeys(("data", "manifests", "ledger", "seals", "leases", "log-extents", "runs"), _WRITE),
        "warehouse": _CHANGE,
    },
    "reader": {
        PREFIX: ("s3:ListBucket",),
        **dict.fromkeys(("data", "manifests", "ledger", "seals", "runs", "heartbeats", "warehouse"), _READ),
    },
    "maintenance": {
        PREFIX: ("s3:ListBucket", "s3:ListBucketMultipartUploads"),
        **dict.fromkeys(("data", "ledger", "warehouse"), _CHANGE),
        **dict.fromkeys(("manifests", "seals"), _WRITE),
    },
}
# For the objects with which the doctor checks conditional writes.
_CHECKED: tuple[Role, ...] = ("archive", "reconcile", "maintenance")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Need:
    """A folder, the actions on it, and the roles that need each."""

    folder: str
    roles: dict[Action, tuple[Role, ...]]


def s3_needs(roles: Sequence[Role]) -> Iterator[S3Need]:
    """What the roles need together, the listing of the prefix first."""
    found: dict[str, dict[Action, tuple[Role, ...]]] = {}
    for role in roles:
        needed = _NEEDS[role] | ({DOCTOR: _CHANGE} if role in _CHECKED else {})
        for folder, actions in needed.items():
            entry = found.setdefault(folder, {})
            for action in actions:
                entry[action] = (*entry.get(action, ()), role)
    for folder, by_action in found.items():
        yield S3Need(folder=folder, roles=by_action)
