"""Types of settings: addresses and links, which are shown, and properties, which a variable holds as JSON."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, StringConstraints

from tidemark.connections.setting_values import json_texts
from tidemark.connections.shown import open_address


def _open_or_none(address: str | None) -> str | None:
    return address and open_address(address)


Address = Annotated[str, AfterValidator(open_address)]
OptionalAddress = Annotated[str | None, AfterValidator(_open_or_none)]
Link = Annotated[str, StringConstraints(pattern=r"^(https?://[^\s@]+)?$")]
Url = Annotated[Link, AfterValidator(open_address)]
Properties = Annotated[dict[str, str], BeforeValidator(json_texts)]
