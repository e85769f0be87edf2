"""Permissions in S3 on a server that enforces the roles' policies: each one removed by itself is the one red line."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.conftest import unique
from tests.doctor.lines import of_state
from tests.gate import Gate, gate
from tidemark.connections.policies import role_policy
from tidemark.inspect.doctor import s3, s3_rights
from tidemark.inspect.doctor.checkup import Checkup, Probe, run_checks
from tidemark.inspect.doctor.roles import ROLES, Role
from tidemark.inspect.doctor.s3_needs import s3_needs, writable
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings

pytestmark = [pytest.mark.services, pytest.mark.conformance(64)]

KEY = "arn:aws:kms:us-east-1:000000000000:key/lake"
ARN = "arn:aws:s3:::"
# The gate, like the server after it, does not offer tags.
NOT_OFFERED = "s3:PutObjectTagging"


def single(policy: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The policy with a statement for each action on each resource, or on each prefix to list, by the line's name."""
    found = {}
    for statement in policy["Statement"]:
        prefixes = statement.get("Condition", {}).get("StringLikeIfExists", {}).get("s3:prefix", [])
        for action in statement["Action"]:
            for prefix in prefixes:
                condition = {"StringLikeIfExists": {"s3:prefix": [prefix]}}
                found[f"{action} on listing of {prefix}"] = {**statement, "Action": action, "Condition": condition}
            for resource in [] if prefixes else statement["Resource"]:
                place = (
                    resource.removeprefix(ARN).partition("/")[2] if resource.startswith(ARN) else f"KMS key {resource}"
                )
                found[f"{action} on {place}"] = {**statement, "Action": action, "Resource": resource}
    return found


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


@pytest.mark.parametrize("role", [role for role in ROLES if role != "replay"])
def test_each_action_that_a_policy_lacks_has_a_red_line_with_its_name_and_nothing_else_has_one(
    role: Role, settings: Settings, store: ObjectStore, tmp_path: Path
) -> None:
    prefix = unique("lake")
    encrypted = {"s3_encryption": "aws:kms", "s3_kms_key": KEY} if role == "archive" else {}
    here = settings.model_copy(update={"prefix": prefix, **encrypted})
    policy = role_policy(role, bucket=settings.bucket, prefix=prefix, kms_key=KEY if encrypted else "")
    statements = single(policy)
    names = [name for name in statements if not name.startswith(NOT_OFFERED)]
    # Each by itself for one role and for keys; for the others several, far from each other: a user costs seconds.
    grouped = [name for name in names if not name.startswith("kms:")]
    groups = len(grouped) if role == "speed" else 5
    missing_together = [
        *(grouped[at::groups] for at in range(groups)),
        *([name] for name in names if name not in grouped),
    ]
    lacking = {f"{role}{number}": missing for number, missing in enumerate([[], *missing_together])}
    users = {
        user: [{**policy, "Statement": [item for name, item in statements.items() if name not in missing]}]
        for user, missing in lacking.items()
    }
    with gate(settings, tmp_path, users=users, prefix=prefix) as running:
        for user, missing in lacking.items():
            found = lines(running, user, role, here)
            assert sorted(name for _, name in of_state(found, "failed")) == sorted(missing)
            assert all(line.name.partition(" on ")[0] in line.hint for line in found if line.state == "failed")
            if not missing:
                assert of_state(found, "skipped") == []
    assert [item.key for item in store.list(f"{prefix}/") if not item.key.endswith("/")] == []
