"""The deployment's notifiers: their classes, and a message through one of them."""

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidemark.connections.notifiers import NotifierSetting, different
from tidemark.connections.setting_values import json_list
from tidemark.connections.sources import variable
from tidemark.core.errors import ConfigError
from tidemark.core.text import error_text
from tidemark.settings import plain_setting

if TYPE_CHECKING:
    from airflow.sdk import BaseNotifier

    from tidemark.inspect.watch_message import Message

_SETTING = "notifiers"
_PROVIDER = "airflow.providers."


def require_notifiers() -> None:
    """Raise ConfigError if the setting is wrong, or one of its notifiers can't be made. It opens no connection."""
    given = plain_setting(_SETTING)
    if not given.value:
        return  # most parsing ends here: what follows takes long to import
    from pydantic import TypeAdapter, ValidationError

    try:
        adapter = TypeAdapter(tuple[NotifierSetting, ...])
        found = different(adapter.validate_python(json_list(given.value)))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _wrong(f"{place}: {first['msg']}" if place else first["msg"], given.source) from None
    except ValueError as error:
        raise _wrong(error, given.source) from None
    for item in found:
        make_notifier(item)


def _wrong(found: object, source: str) -> ConfigError:
    return ConfigError(
        "the setting of the notifiers is wrong",
        expected='a list of {"class": "package.module.Class", "kwargs": {...}}',
        found=found,
        where=f"{variable(_SETTING)}, {source}",
    )


def make_notifier(item: NotifierSetting) -> "BaseNotifier":
    """The notifier. Raises ConfigError, saying what to install, if there is no such class or it refuses its
    arguments."""
    from airflow.sdk import BaseNotifier

    where = f"{variable(_SETTING)}, class {item.path}"
    module, _, name = item.path.rpartition(".")
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as error:
        raise ConfigError("a notifier can't be imported", found=error, where=where, hint=_hint(item.path)) from error
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        shown = f"no {name} in module {module}" if found is None else item.path
        raise ConfigError("not a notifier", expected="a subclass of airflow.sdk.BaseNotifier", found=shown, where=where)
    try:
        return found(**item.kwargs)
    except Exception as error:  # the classes are not ours
        raise ConfigError("a notifier refuses its arguments", found=error_text(error), where=where) from error


def _hint(path: str) -> str:
    if not path.startswith(_PROVIDER):
        return "Put its folder on the Python path of every process of Airflow"
    parts = path.removeprefix(_PROVIDER).split(".")
    name = "-".join(parts[:2] if parts[0] in {"apache", "cncf", "common", "microsoft"} else parts[:1])
    return f"Install the package apache-airflow-providers-{name}"


def send(item: NotifierSetting, message: "Message", context: Any) -> None:
    """Send the message. The arguments' templates find it as ``watch``: a notifier's own fields would hide other names,
    such as ``subject``. Raises what the notifier raises."""
    make_notifier(item)({**context, "watch": asdict(message)})
