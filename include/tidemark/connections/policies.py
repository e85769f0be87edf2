"""Placeholder until the policies of the roles are merged."""

from typing import Any

_READ = ("s3:GetObject",)
_WRITE = (*_READ, "s3:PutObject", "s3:AbortMultipartUpload")
_CHANGE = (*_WRITE, "s3:DeleteObject")
_NEEDS: dict[str, dict[str, tuple[str, ...]]] = {
    "archive": {
        **dict.fromkeys(("data/*", "manifests/*", "ledger/*", "heartbeats/*"), _WRITE),
        **dict.fromkeys(("checkpoints/*", "doctor/*"), _CHANGE),
    },
    "speed": {"heartbeats/*": _WRITE, "checkpoints/*": _CHANGE},
    "reconcile": {
        **dict.fromkeys(
            ("data/*", "manifests/*", "ledger/*", "seals/*", "leases/*", "log-extents/*", "runs/*"), _WRITE
        ),
        **dict.fromkeys(("warehouse/*", "doctor/*"), _CHANGE),
    },
    "reader": dict.fromkeys(("data/*", "manifests/*", "ledger/*", "seals/*", "runs/*", "warehouse/*"), _READ),
    "maintenance": {
        **dict.fromkeys(("data/*", "ledger/*", "warehouse/*", "doctor/*"), _CHANGE),
        **dict.fromkeys(("manifests/*", "seals/*"), _WRITE),
    },
}


def role_policy(role: str, *, bucket: str, prefix: str, kms_key: str | None = None) -> dict[str, Any]:
    """The policy of a role."""
    arn = f"arn:aws:s3:::{bucket}"
    below = f"{arn}/{prefix}/" if prefix else f"{arn}/"
    listing = ["s3:ListBucket", *(["s3:ListBucketMultipartUploads"] if role == "maintenance" else [])]
    statements: list[dict[str, Any]] = [{"Effect": "Allow", "Action": listing, "Resource": arn}]
    statements += [
        {"Effect": "Allow", "Action": list(actions), "Resource": below + place}
        for place, actions in _NEEDS[role].items()
    ]
    if kms_key:
        statements.append({"Effect": "Allow", "Action": ["kms:GenerateDataKey", "kms:Decrypt"], "Resource": kms_key})
    return {"Version": "2012-10-17", "Statement": statements}
