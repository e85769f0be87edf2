"""Least-privilege policies for S3, one file per role, in the language of IAM. The files are templates.

``${bucket}`` and ``${kms_key}`` are the bucket's name and the key's ARN. ``${prefix}`` and ``${tables}`` are the
folders of the archive and of the tables, with a slash at the end; an empty one is the whole bucket.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from tidemark.core.errors import ConfigError

ROLES = ("archive", "speed", "reconcile", "maintenance", "reader")
_KEY_STATEMENT = "Key"
# Replays deliver as the speed stream does.
_AS_ANOTHER = {"replay": "speed"}


def role_policy(
    role: str, *, bucket: str, prefix: str = "", tables: str | None = None, kms_key: str = ""
) -> dict[str, Any]:
    """The policy of a role for these folders, without slashes at their ends, and this key.

    ``tables`` is the folder of the Iceberg tables, by default the archive's warehouse. Without a key of one's own for
    SSE-KMS the policy has no statement for keys. Raises ConfigError for a role that there is not.
    """
    name = _AS_ANOTHER.get(role, role)
    if name not in ROLES:
        raise ConfigError("there is no such role", expected=", ".join(ROLES), found=role)
    folder = f"{prefix}/" if prefix else ""
    values = {
        "bucket": bucket,
        "prefix": folder,
        "tables": f"{folder}warehouse/" if tables is None else f"{tables}/" if tables else "",
        "kms_key": kms_key,
    }
    text = Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8")
    policy: dict[str, Any] = _filled(json.loads(text), values)
    if not kms_key:
        policy["Statement"] = [item for item in policy["Statement"] if item["Sid"] != _KEY_STATEMENT]
    return policy


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """The value with every placeholder in its texts replaced. Each text by itself: a name may have quotes."""
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return Template(value).substitute(values)
