"""Mask what may hold personal data: values, and the texts of errors that Spark and Python raise on a row.

A masked value shows nothing of the value, not even a hash: whoever can guess a value could compute the hash, too.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.core.errors import ServiceError, TidemarkError
from tidemark.core.text import excerpt

MASK = "•••"
_FAILURE_CHARACTERS_MAX = 1_000
_CLASS = re.compile(r"((?:[A-Za-z_]\w*\.)*\w*(?:Exception|Error))(?=$|[:\s])(?::\s*)?")
# Spark's name for a kind of error. In a text of others, it may be a part of a value.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*\]")
_SPARKS = "org.apache.spark."
_LOGIN = re.compile(r"//[^\s?#]*@")
_IN_DOUBT = re.compile(r"//\S*[?#]\S*@\S*")  # an @ in a parameter, or these characters in a password
_PARAMETERS = re.compile(r"[?#]\S*=\S*")


def masked_addresses(text: str) -> str:
    """An error's text without logins and parameters in its URLs. A password may contain any character but a space."""
    return _PARAMETERS.sub(f"?{MASK}", _LOGIN.sub(f"//{MASK}@", _IN_DOUBT.sub(f"//{MASK}", text)))


def failure_text(error: BaseException, *, named: bool = False) -> str:
    """The text of a failure where it is kept or sent: in a step's outcome, a report, a heartbeat, lineage.

    A Tidemark error is kept whole, with its class if ``named``. Another error always has its class. Its text is one
    bounded line without logins: it may quote a record of any size, or an address with its password. The process's
    log has all of it.
    """
    name = f"{type(error).__name__}: "
    if isinstance(error, TidemarkError):
        return f"{name if named else ''}{error}"
    return name + excerpt(masked_addresses(str(error)), _FAILURE_CHARACTERS_MAX)


def masked_cause(text: str) -> str:
    """An error's line without what it says: its class, and the condition if it is Spark's."""
    kind = _CLASS.match(text)
    name = kind[1] if kind else ""
    rest = text[kind.end() :] if kind else text
    condition = _CONDITION.match(rest) if not name or name.startswith(_SPARKS) else None
    parts = [f"{name}:" if name else "", condition[0] if condition else "", MASK]
    return " ".join(part for part in parts if part)


@contextmanager
def masked_failures(*, personal: bool) -> Iterator[None]:
    """Inside the block, the text of an unexpected error is masked if ``personal``.

    It is then raised as a ServiceError that names its class.
    """
    try:
        yield
    except TidemarkError:
        raise
    except Exception as error:
        if not personal:
            raise
        found = f"{type(error).__name__}: {MASK}"
        hint = "The stream has personal data, so the text is masked. To see it, repeat the work with test records"
        # Without the error itself: a trace would print its text.
        raise ServiceError("an unexpected error", found=found, hint=hint) from None
