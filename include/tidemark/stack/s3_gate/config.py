"""What the gate knows: its certificate, the server that it guards, users, roles and policies. A JSON file, mode 600."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from tidemark.stack.files import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class GateUser:
    """One identity with a key of its own, and the policies it has."""

    name: str
    access_key: str
    secret_key: str = field(repr=False)
    policies: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRole:
    """A role that the users named in ``trusted`` may assume, with ``external_id`` if it has one."""

    name: str
    policies: Sequence[Mapping[str, Any]] = ()
    trusted: Sequence[str] = ()
    external_id: str = ""

    @property
    def arn(self) -> str:
        return f"arn:aws:iam::000000000000:role/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """Everything a gate is started with. ``session_s`` caps how long an assumed role's session lasts.

    ``token_key`` signs the sessions' tokens: a restarted gate accepts them again if it is the same.
    ``bucket_policies`` apply to every request, as a bucket's own policy does.
    """

    port: int
    certificate: str
    key: str
    upstream: str
    upstream_access_key: str
    upstream_secret_key: str = field(repr=False)
    token_key: str = field(repr=False)
    users: Sequence[GateUser] = ()
    roles: Sequence[GateRole] = ()
    bucket_policies: Sequence[Mapping[str, Any]] = ()
    session_s: float = 3600

    def user(self, name: str) -> GateUser:
        """The user of this name; raises StopIteration if there is none."""
        return next(user for user in self.users if user.name == name)

    def write(self, path: Path) -> None:
        """Write the file; a running gate takes the new one from its next request on."""
        write_private(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file's content; raises OSError, ValueError and TypeError if it is none of ``write``'s."""
        value = json.loads(path.read_text(encoding="utf-8"))
        value["users"] = [GateUser(**user) for user in value["users"]]
        value["roles"] = [GateRole(**role) for role in value["roles"]]
        return cls(**value)
