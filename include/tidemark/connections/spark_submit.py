"""How a step's application is submitted: one of three ways, or a class of the deployment."""

import re

WAYS = ("client", "cluster", "kubernetes")
_CLASS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def checked_way(text: str) -> str:
    """The way, or the name of a class. Raises ValueError with what was expected."""
    if text not in WAYS and not _CLASS.fullmatch(text):
        raise ValueError(f"expected {', '.join(WAYS)}, or a class as package.module:Class; found {text!r}")
    return text
