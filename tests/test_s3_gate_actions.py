"""What the gate takes a request for: nothing passes as another call than the one whose permission was checked."""

import pytest

from tidemark.stack.s3_gate.actions import Address, deleted_keys, needed
from tidemark.stack.s3_gate.encryption import Encryption
from tidemark.stack.s3_gate.refusal import Refusal


@pytest.mark.parametrize("query", ["uploads&delete", "delete&uploadId=1", "delete"])
def test_an_object_s_call_is_none_that_deletes_several(query: str) -> None:
    with pytest.raises(Refusal, match="does not know this call"):
        needed(Address.parse("POST", "/lake/key", query), {}, Encryption())


@pytest.mark.parametrize("path", ["/lake/mine/../others/key", "/lake/mine/%2e%2e/others", "/lake/./key", "/lake/a/.."])
def test_a_key_can_not_climb_out_of_its_folder(path: str) -> None:
    with pytest.raises(Refusal, match="takes no key"):
        Address.parse("GET", path, "")
    assert Address.parse("GET", "/lake/a..b/.c", "").key == "a..b/.c"


def test_a_call_that_deletes_nothing_is_refused() -> None:
    with pytest.raises(Refusal, match="names no key"):
        deleted_keys(b"<Delete/>")
    assert deleted_keys(b"<Delete><Object><Key>a</Key></Object></Delete>") == ["a"]
