"""What a later version wrote in another format is refused, and the error says so."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemark_verify
from tests.upgrades.kept import Kept, kept_versions
from tidemark.archive.ledger.segment import parse_segment
from tidemark.core.certificate import parse_certificate
from tidemark.core.errors import FormatError
from tidemark.core.heartbeat import parse_heartbeat
from tidemark.core.log_extents import parse_extents
from tidemark.core.manifest import parse_manifest
from tidemark.core.seal import parse_seal

pytestmark = pytest.mark.conformance(66)

KEPT = Kept.read(kept_versions()[-1])
LATER = "A later version of Tidemark wrote it: use that version or a later one"


def of_folder(name: str) -> list[tuple[str, bytes]]:
    """The objects below this folder of the prefix."""
    start = f"{KEPT.prefix}/{name}/"
    return [item for item in sorted(KEPT.objects().items()) if item[0].startswith(start)]


@pytest.mark.parametrize(
    ("folder", "parse", "problem", "known"),
    [
        ("manifests", parse_manifest, "unknown manifest format", 3),
        ("seals", parse_seal, "unknown seal format", 3),
        ("certificates", parse_certificate, "unknown certificate format", 1),
        ("heartbeats", parse_heartbeat, "unknown heartbeat format", 3),
        ("log-extents", parse_extents, "unknown format of offsets seen in Kafka", 2),
    ],
)
def test_an_object_of_a_newer_format_is_refused_with_what_to_do(
    folder: str, parse: Callable[..., Any], problem: str, known: int
) -> None:
    # A manifest or a seal has the lowest format that can hold it.
    objects = [item for item in of_folder(folder) if item[0].endswith(".json")]
    key, body = max(objects, key=lambda item: json.loads(item[1])["format"])
    parse(body, where=key)
    assert folder == "seals" or json.loads(body)["format"] == known, "write the fixture again: CONTRIBUTING.md"
    newer = json.dumps({**json.loads(body), "format": known + 1}).encode()
    with pytest.raises(FormatError) as error:
        parse(newer, where=key)
    assert str(error.value).startswith(f"{problem}: expected {known}, found {known + 1} [{key}]")
    assert LATER in str(error.value)


def test_certificates_of_a_released_version_hold_with_their_objects(tmp_path: Path) -> None:
    for key, body in KEPT.objects().items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    files = sorted(str(path) for path in tmp_path.glob("*/certificates/*/*/*.json"))
    found = tidemark_verify.check(files, (), str(tmp_path))
    assert found.verdict == "holds"
    versions = [(item.day, item.version) for item in found.certificates]
    assert versions == [(str(day), at) for day, own in KEPT.versions.items() for at in range(1, len(own) + 1)]
    assert all(item.objects_checked == item.objects > 0 for item in found.certificates)


def test_a_ledger_of_a_newer_format_can_be_rebuilt() -> None:
    key, body = of_folder("ledger")[0]
    own = {"stream": KEPT.stream, "time_zone": "America/New_York", "where": key}
    parse_segment(body, **own)
    head, _, rest = body.partition(b"\n")
    magic, form, digest = head.split(b" ")
    assert form == b"3", "write the fixture again: CONTRIBUTING.md"
    newer = b"%s 4 %s\n%s" % (magic, digest, rest)
    with pytest.raises(
        FormatError, match=r"unknown ledger format: expected 3, found 4 .*tidemark maintain STREAM --rebuild-ledger"
    ):
        parse_segment(newer, **own)
