"""Permissions in S3 on a server that enforces the roles' policies: each one removed by itself is the one red line."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.conftest import unique
from tests.doctor.lines import of_state, red
from tests.gate import Gate, gate
from tidemark.connections.policies import role_policy
from tidemark.inspect.doctor import s3, s3_rights
from tidemark.inspect.doctor.checkup import Checkup, Probe, run_checks
from tidemark.inspect.doctor.roles import ROLES, Role
from tidemark.inspect.doctor.s3_needs import s3_needs, writable
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = pytest.mark.services

KEY = "arn:aws:kms:us-east-1:000000000000:key/lake"
ARN = "arn:aws:s3:::"
# The gate, like the server after it, does not offer tags.
NOT_OFFERED = {"s3:PutObjectTagging"}


def without_one(policy: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The policy without one action on one resource, or without one prefix to list, and the red line's name."""
    for number, statement in enumerate(policy["Statement"]):
        keys = statement.get("Condition", {}).get("StringLikeIfExists", {}).get("s3:prefix")
        for action in sorted(set(statement["Action"]) - NOT_OFFERED):
            for part in keys or statement["Resource"]:
                less = deepcopy(statement)
                if keys is None:
                    less["Resource"].remove(part)
                else:
                    less["Condition"]["StringLikeIfExists"]["s3:prefix"].remove(part)
                others = {**statement, "Action": [item for item in statement["Action"] if item != action]}
                kept = [item for item in (others, {**less, "Action": [action]}) if item["Action"] and item["Resource"]]
                rest = [item for at, item in enumerate(policy["Statement"]) if at != number]
                yield f"{action} on {_shown(part, listed=keys is not None)}", {**policy, "Statement": [*rest, *kept]}


def _shown(part: str, *, listed: bool) -> str:
    if listed:
        return f"listing of {part}"
    return part.removeprefix(ARN).partition("/")[2] if part.startswith(ARN) else f"KMS key {part}"


def lines(running: Gate, user: str, role: Role, settings: Settings) -> tuple[Checkup, ...]:
    known = running.config.user(user)
    guarded = settings.model_copy(
        update={
            "s3_endpoint": running.url,
            "s3_access_key": SecretStr(known.access_key),
            "s3_secret_key": SecretStr(known.secret_key),
            "s3_ca_bundle": running.ca,
        }
    )
    needs = s3_needs(guarded, [role])
    checks: list[Probe] = [*s3.connection_checks(guarded), *s3_rights.rights_checks(guarded, needs)]
    if (place := writable(needs)) is not None and user == f"{role}0":
        checks += s3.conditional_checks(guarded, place.key, (f"S3: {place.name}",))
    return tuple(run_checks(checks, lambda _: None))


@pytest.mark.parametrize("role", ROLES)
def test_each_action_of_a_policy_removed_by_itself_is_the_only_red_line_and_named_by_it(
    role: Role, settings: Settings, store: ObjectStore, tmp_path: Path
) -> None:
    prefix = unique("lake")
    encrypted = {"s3_encryption": "aws:kms", "s3_kms_key": KEY} if role == "archive" else {}
    here = settings.model_copy(update={"prefix": prefix, **encrypted})
    policy = role_policy(role, bucket=settings.bucket, prefix=prefix, kms_key=KEY if encrypted else "")
    lacking = dict(enumerate([("", policy), *without_one(policy)]))
    users = {f"{role}{number}": [reduced] for number, (_, reduced) in lacking.items()}
    with gate(settings, tmp_path, users=users, prefix=prefix) as running:
        for number, (name, _) in lacking.items():
            found = lines(running, f"{role}{number}", role, here)
            if name:
                assert red(found).name == name
                assert name.partition(" on ")[0] in red(found).hint
            else:
                assert of_state(found, "failed", "skipped") == []
    assert [item.key for item in store.list(f"{prefix}/") if not item.key.endswith("/")] == []
