"""Notifiers of Airflow as a setting names them: which class, and its arguments."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from tidemark.connections.shown import SECRET_WORDS, has_login

# An argument with such a name holds a secret, unless the name ends as that of a connection does.
_SECRET = re.compile(f"{SECRET_WORDS}|webhook_url|routing_key", re.IGNORECASE)


class NotifierSetting(BaseModel):
    """One notifier. ``kwargs`` are the arguments of its class; texts may be templates of Airflow."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    path: str = Field(alias="class", pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")
    kwargs: dict[str, Any] = {}

    @field_validator("kwargs")
    @classmethod
    def _has_no_secret(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, text in _arguments(kwargs):
            named = _SECRET.search(name) and not name.endswith(("_conn_id", "_connection"))
            if named or has_login(text):
                raise ValueError(f"{name} holds a secret: put it into a connection of Airflow, and name that one")
        return kwargs

    @property
    def id(self) -> str:
        """What distinguishes it from the others: another class or argument makes another notifier."""
        text = json.dumps([self.path, self.kwargs], sort_keys=True)
        return f"{self.path.rpartition('.')[2]}-{sha256(text.encode()).hexdigest()[:8]}"


def different(items: tuple[NotifierSetting, ...]) -> tuple[NotifierSetting, ...]:
    """The notifiers of a deployment, each once."""
    if len({item.id for item in items}) < len(items):
        raise ValueError("the same notifier is listed twice")
    return items


def _arguments(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Each name with an empty text, and each text with the name to which it belongs."""
    if isinstance(value, dict):
        for own, item in value.items():
            yield str(own), ""
            yield from _arguments(item, str(own))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _arguments(item, name)
    elif isinstance(value, str):
        yield name, value
