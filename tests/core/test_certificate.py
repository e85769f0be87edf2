"""``tidemark_verify.py``: what it finds in certificates and objects, with a clean Python and nothing else."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemark_verify
from tests.command_json import valid_error, valid_result
from tests.core.worlds import log, seal_of, sealed_log, span
from tidemark.core.approval import Approval
from tidemark.core.certificate import SealSignature, certify, parse_certificate, private_key
from tidemark.core.object_list import ObjectList, day_objects
from tidemark.core.plan import Evidence, Hole, RowsOfDay, Slice
from tidemark.core.seal import PreviousDay, Seal
from tidemark.installation import PROJECT
from tidemark_verify import BROKEN, HOLDS, NOT_FOUND_OUT, USAGE, check, check_certificate, ed25519_verifies

pytestmark = pytest.mark.conformance(42)
DAY = date(2025, 6, 30)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw().hex()
BODIES = {
    f"lake/data/flights/hour={hour:02}/flights+0+{hour}.parquet": b"PAR1" + bytes([hour]) * 9 for hour in range(3)
}
# RFC 8032, section 7.1: public key, message, signature.
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
            "24655141438e7a100b"
        ),
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302a"
            "eeb00d291612bb0c00"
        ),
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed2"
            "8dc027beceea1ec40a"
        ),
    ),
]


def sign(body: bytes) -> SealSignature:
    return SealSignature(public_key=PUBLIC, signature=KEY.sign(body).hex())


def slices(bodies: dict[str, bytes], day: date) -> list[Slice]:
    return [
        Slice(
            key=key,
            log=log(),
            range=span(0, 1),
            whole=True,
            bytes=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            rows=(RowsOfDay(day=day, rows=1),),
        )
        for key, body in bodies.items()
    ]


def sealed(day: date = DAY, *, version: int = 1, before: Seal | None = None, **other: Any) -> Seal:
    """A seal with a loss that a person has accepted, and with the three objects."""
    own: dict[str, Any] = {
        "rows_read": 12,
        "rows_published": 11,
        "rows_quarantined": 1,
        "objects": day_objects(slices(BODIES, day), day)[0],
        "approval": Approval(by="ann", at_us=1, words="Kafka had deleted them"),
        "previous_day": PreviousDay(day=before.day, version=before.version, digest=before.digest()) if before else None,
    }
    return replace(seal_of(day, [sealed_log(log(), 0, 20, [span(5, 8)])], version=version), **(own | other))


def stored(folder: Path, seal: Seal, *, key: Ed25519PrivateKey | None = KEY) -> str:
    """The certificate's file; the list of objects lies beside it."""
    folder = folder / str(seal.day)
    folder.mkdir(exist_ok=True)
    _, body = day_objects(slices(BODIES, seal.day), seal.day)
    (folder / f"{seal.objects.sha256}.objects").write_bytes(body)
    file = folder / f"{seal.version:04}.json"
    file.write_bytes(certify(seal, sign if key else None).to_json())
    return str(file)


def downloaded(folder: Path, strip: str = "lake/") -> Path:
    """The objects as a person downloads them, from this folder of the bucket on."""
    root = folder / "downloads"
    for key, body in BODIES.items():
        path = root / key.removeprefix(strip)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return root


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    """Exit code and result of the command with --json."""
    code = tidemark_verify.main([*map(str, arguments), "--json"])
    return code, valid_result("tidemark-verify", capsys.readouterr().out)


def problems(result: dict[str, Any]) -> list[str]:
    return [item["what"] for one in result["certificates"] for item in one["problems"]]


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_signatures_of_rfc_8032_verify(key: str, message: str, signature: str) -> None:
    parts = bytes.fromhex(key), bytes.fromhex(message), bytes.fromhex(signature)
    assert ed25519_verifies(*parts)
    assert not ed25519_verifies(parts[0], parts[1] + b"\0", parts[2])


@settings(max_examples=50, deadline=None)
@given(
    seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=200), part=st.integers(0, 2), data=st.data()
)
def test_a_signature_that_openssl_makes_verifies_and_no_changed_bit_does(
    seed: bytes, message: bytes, part: int, data: st.DataObject
) -> None:
    own = Ed25519PrivateKey.from_private_bytes(seed)
    parts = [own.public_key().public_bytes_raw(), message + b".", own.sign(message + b".")]
    assert ed25519_verifies(*parts)
    bit = data.draw(st.integers(0, 8 * len(parts[part]) - 1))
    changed = bytearray(parts[part])
    changed[bit // 8] ^= 1 << bit % 8
    parts[part] = bytes(changed)
    assert not ed25519_verifies(*parts)


@pytest.mark.parametrize("key", [KEY, None])
def test_every_changed_byte_of_a_certificate_is_found(tmp_path: Path, key: Ed25519PrivateKey | None) -> None:
    body = Path(stored(tmp_path, sealed(before=sealed(DAY - timedelta(1))), key=key)).read_bytes()
    assert check_certificate("one", body, ())[0].problems == []
    assert len(body) > 1000
    for at in range(len(body)):
        for bits in (0x01, 0x20, 0x80):
            changed = body[:at] + bytes([body[at] ^ bits]) + body[at + 1 :]
            assert check_certificate("one", changed, ())[0].problems, (at, bits, changed[max(at - 20, 0) : at + 20])
    for cut in (body[:-1], body + b"\n", body[1:], b"", b" " + body, b"[]", b"{}", b"null", b"[" * 100_000):
        assert check_certificate("one", cut, ())[0].problems


def test_every_changed_byte_of_an_object_or_of_the_list_is_found(tmp_path: Path) -> None:
    file, objects = stored(tmp_path, sealed()), downloaded(tmp_path)
    (listed,) = Path(file).parent.glob("*.objects")
    assert check([file], [PUBLIC], str(objects)).verdict == "holds"
    paths = [path for path in objects.rglob("*") if path.is_file()]
    assert len(paths) == 3
    for path in (*paths, listed):
        body = path.read_bytes()
        for at in range(len(body)):
            path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
            assert check([file], [PUBLIC], str(objects)).verdict == "broken", (path, at)
        path.write_bytes(body[:-1])
        assert check([file], [PUBLIC], str(objects)).verdict == "broken"
        path.write_bytes(body)
    assert check([file], [PUBLIC], str(objects)).verdict == "holds"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"nothing of it\n", "lines of the list that name an object"),
        (b"0" * 64 + b" 39 key", "lines of the list of objects"),
        (b"0" * 64 + b" 39 key\n" + b"and more\n", "lines of the list of objects"),
        (b"0" * 64 + b" 40 key\n", "bytes of all listed objects"),
    ],
)
def test_a_list_that_is_none_is_found_though_its_hash_fits(tmp_path: Path, body: bytes, what: str) -> None:
    digest = hashlib.sha256(body).hexdigest()
    file = Path(stored(tmp_path, sealed(objects=ObjectList(count=1, bytes=39, sha256=digest))))
    (file.parent / f"{digest}.objects").write_bytes(body)
    (item,) = check([str(file)], (), str(downloaded(tmp_path))).certificates
    assert what in [problem.what for problem in item.problems]


def test_the_copied_file_needs_nothing_but_python(tmp_path: Path) -> None:
    """``-S`` hides every installed package, ``-I`` the folder and the variables."""
    file, objects, alone = stored(tmp_path, sealed()), downloaded(tmp_path), tmp_path / "alone.py"
    shutil.copy(PROJECT / "include" / "tidemark_verify.py", alone)
    pem = tmp_path / "public.pem"
    pem.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    command = [sys.executable, "-I", "-S", str(alone), "--key", str(pem), "--objects", str(objects), file]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={})
    assert (shown.returncode, shown.stderr) == (HOLDS, "")
    assert shown.stdout.splitlines() == [
        "flights 2025-06-30 version 1: holds",
        f"  SHA-256    {sealed().digest()}",
        f"  Signature  signed by the given key ({PUBLIC})",
        "  Rows       12 read = 11 published + 1 quarantined + 0 removed as duplicates",
        "  Offsets    3 lost, 0 without a row (0 of them unexplained)",
        "  Checks     passed, approved by ann: Kafka had deleted them",
        "  Objects    3 of 3 compared, 39 bytes",
        "  Note       No earlier day was sealed then: the chain of days begins here.",
        "Verdict: holds",
    ]


def test_who_signed_is_said_and_a_given_key_is_required(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw().hex()
    signed, unsigned = stored(tmp_path, sealed()), stored(tmp_path, sealed(DAY + timedelta(1)), key=None)
    for arguments, code, said, wrong in (
        ([signed], HOLDS, "unknown key", []),
        ([signed, "--key", PUBLIC], HOLDS, "given key", []),
        ([signed, "--key", other, "--key", PUBLIC], HOLDS, "given key", []),
        ([signed, "--key", other], BROKEN, None, ["another key signed a certificate"]),
        ([unsigned], HOLDS, "unsigned", []),
        ([unsigned, "--key", PUBLIC], BROKEN, "unsigned", ["a certificate is unsigned"]),
    ):
        found = run(capsys, *arguments)
        assert (found[0], found[1]["certificates"][0]["signature"], problems(found[1])) == (code, said, wrong)
    assert tidemark_verify.main([unsigned]) == HOLDS
    assert "UNSIGNED: it shows later changes, but not who wrote it" in capsys.readouterr().out


def chain(tmp_path: Path, *seals: Seal) -> list[str]:
    return [stored(tmp_path, seal) for seal in seals]


def test_the_words_of_a_certificate_can_not_begin_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "yes\nVerdict: holds\x1b[2J"
    file = stored(tmp_path, sealed(approval=Approval(by="eve", at_us=1, words=words)), key=None)
    assert tidemark_verify.main([file, "--key", PUBLIC]) == BROKEN
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("Verdict")] == ["Verdict: broken"]
    assert "approved by eve: yes\\nVerdict: holds\\x1b[2J" in shown


def test_a_chain_of_days_with_a_missing_and_a_reopened_day_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sealed()
    third = sealed(DAY + timedelta(2), before=first)
    reopened = sealed(version=2, previous=first.digest())
    fourth = sealed(DAY + timedelta(3), before=third)
    second_late = sealed(DAY + timedelta(1), before=reopened)
    code, result = run(capsys, *chain(tmp_path, fourth, reopened, third, second_late, first))
    assert (code, result["verdict"]) == (HOLDS, "holds")
    notes = [[text for text in item["notes"] if "objects" not in text] for item in result["certificates"]]
    begins = ["No earlier day was sealed then: the chain of days begins here."]
    assert notes == [[], begins, ["2025-07-01 was not sealed then."], [], begins]
    code, result = run(capsys, *chain(tmp_path, fourth, reopened))
    assert (code, result["verdict"]) == (HOLDS, "holds")
    text = "It follows {0.day} version {0.version}, whose certificate was not given: SHA-256 {1}."
    found = [text for item in result["certificates"] for text in item["notes"] if text.startswith("It follows")]
    assert found == [text.format(third, third.digest()), text.format(first, first.digest())]


@pytest.mark.parametrize(
    "change",
    [
        lambda first, second, late: [replace(first, rows_read=13, rows_published=12), second, late],
        lambda first, second, late: [first, replace(second, rows_read=13, rows_published=12), late],
    ],
)
def test_a_certificate_in_place_of_the_one_before_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[..., Sequence[Seal]]
) -> None:
    """Even if the operator's key signed it: the later certificates name the SHA-256 of the first one."""
    first = sealed()
    second = sealed(version=2, previous=first.digest())
    late = sealed(DAY + timedelta(1), before=second)
    code, result = run(capsys, *chain(tmp_path, *change(first, second, late)), "--key", PUBLIC)
    assert (code, set(problems(result))) == (BROKEN, {"SHA-256 of a certificate before"})


def test_losses_nobody_accepted_causes_and_rollbacks_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proven = Evidence(transactional=1, compacted=0, unexplained=2, ranges=(span(9, 11),))
    holes = (
        Hole(range=span(0, 5), missing=2, cause="unexplained"),
        Hole(range=span(8, 20), missing=3, cause="unexplained", evidence=proven),
    )
    logs = tuple(replace(item, holes=holes) for item in sealed().logs)
    first = sealed(approval=None, logs=logs)
    repeated = sealed(version=2, previous=first.digest(), rolled_back_to=1, approval=None)
    code, result = run(capsys, *chain(tmp_path, first, repeated))
    assert code == HOLDS
    one, two = result["certificates"]
    assert (one["lost"], one["without_row"], one["unexplained"], one["approval"]) == (3, 5, 4, None)
    assert one["notes"][0].startswith("It names nobody who accepted the loss")
    assert two["notes"][1] == "It repeats version 1, to which the day was rolled back."


def test_two_certificates_of_one_version_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    files = stored(tmp_path, sealed()), stored(tmp_path / "other", sealed(snapshot_id=2))
    code, result = run(capsys, *files)
    assert (code, problems(result)) == (BROKEN, ["two certificates of one version"])


def test_the_same_certificate_twice_is_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = stored(tmp_path, sealed())
    assert run(capsys, file, file)[0] == HOLDS


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"rows_published": 10}, "rows published, quarantined and removed"),
        ({"logs": [{"start": 1}]}, "used ranges and losses do not tile a log"),
        ({"logs": [{"end": 21}]}, "end of a log"),
        ({"logs": [{"gaps": []}]}, "used ranges and losses do not tile a log"),
        ({"logs": [{"holes": [{"range": [30, 40], "missing": 1}]}]}, "a hole is not in a used range"),
        ({"logs": [{"holes": [{"range": [0, 5], "missing": 6}]}]}, "a hole is not in a used range"),
        ({"format": 4}, "unknown format of a certificate"),
        ({"day": "2025-06-31", "previous_day": None}, "a certificate does not parse"),
        ({"objects": None}, "a certificate does not parse"),
        ({"objects": {"count": 0, "bytes": 0, "sha256": "../../etc"}}, "a certificate does not parse"),
        ({"previous_day": {"day": "2025-06-29", "version": 1}}, "a certificate does not parse"),
        ({"previous_day": {"day": "2025-07-01", "version": 1, "digest": "0" * 64}}, "the day before"),
        ({"version": 2, "previous": None}, "a certificate does not parse"),
    ],
)
def test_a_seal_that_contradicts_itself_is_found_though_its_hash_fits(change: dict[str, Any], what: str) -> None:
    seal = json.loads(sealed().to_json())
    own = dict(change)
    for log_of_seal, other in zip(seal["logs"], own.pop("logs", []), strict=False):
        log_of_seal.update(other)
    seal.update(own)
    message = (json.dumps(seal, sort_keys=True, separators=(",", ":")) + "\n").encode()
    value = {"format": 1, "seal": seal, "sha256": hashlib.sha256(message).hexdigest(), "signature": None}
    body = (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()
    assert what in [item.what for item in check_certificate("one", body, ())[0].problems]


@pytest.mark.parametrize("strip", ["", "lake/", "lake/data/flights/"])
def test_objects_are_found_from_any_folder_of_the_bucket_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strip: str
) -> None:
    code, result = run(capsys, stored(tmp_path, sealed()), "--objects", downloaded(tmp_path, strip))
    assert (code, result["certificates"][0]["objects_checked"]) == (HOLDS, 3)


def test_a_listing_of_sha256sum_stands_for_the_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, listing = stored(tmp_path, sealed()), tmp_path / "sums"
    lines = [f"{hashlib.sha256(body).hexdigest()}  /mnt/{key}\n" for key, body in BODIES.items()]
    listing.write_text("".join(lines), encoding="utf-8")
    assert run(capsys, file, "--objects", listing)[0] == HOLDS
    listing.write_text(lines[0] + lines[1] + lines[2].replace(lines[2][:64], lines[0][:64]), encoding="utf-8")
    code, result = run(capsys, file, "--objects", listing)
    assert (code, problems(result)) == (BROKEN, ["SHA-256 of an object"])
    listing.write_text(lines[0], encoding="utf-8")
    code, result = run(capsys, file, "--objects", listing)
    assert (code, result["verdict"]) == (NOT_FOUND_OUT, "unknown")
    assert result["certificates"][0]["unknown"][0].startswith("2 of 3 objects were not given.")


def test_what_can_t_be_checked_is_neither_right_nor_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, objects = stored(tmp_path, sealed()), downloaded(tmp_path)
    next(Path(file).parent.glob("*.objects")).unlink()
    code, result = run(capsys, file, "--objects", objects)
    assert (code, result["verdict"]) == (NOT_FOUND_OUT, "unknown")
    assert "The list of its objects can't be read" in result["certificates"][0]["unknown"][0]
    (tmp_path / "listing").write_text("no hash\n", encoding="utf-8")
    (tmp_path / "key").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", encoding="utf-8")
    for arguments, kind, message in (
        ([tmp_path / "none.json"], "FileNotFoundError", "No such file"),
        ([file, "--key", tmp_path / "key"], "NotCheckedError", "a public key does not parse"),
        ([file, "--objects", tmp_path / "listing"], "NotCheckedError", "a listing does not parse"),
    ):
        assert tidemark_verify.main([*map(str, arguments), "--json"]) == NOT_FOUND_OUT
        error = valid_error("tidemark-verify", capsys.readouterr().out)
        assert (error["kind"], message in error["message"]) == (kind, True)
        assert tidemark_verify.main([*map(str, arguments)]) == NOT_FOUND_OUT
        shown = capsys.readouterr()
        assert (shown.out, message in shown.err) == ("", True)


def test_a_wrong_command_line_ends_with_64(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--no-such-option", "one.json"]):
        with pytest.raises(SystemExit) as ended:
            tidemark_verify.main(arguments)
        assert ended.value.code == USAGE
    assert "usage: tidemark-verify" in capsys.readouterr().err


def test_a_certificate_reads_back_and_follows_from_its_seal() -> None:
    certificate = certify(sealed(), sign)
    assert parse_certificate(certificate.to_json(), where="here") == certificate
    assert certificate == certify(sealed(), sign)
    assert certificate.seal == json.loads(sealed().to_json())


def test_a_private_key_is_read_as_openssl_writes_it() -> None:
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for text in (pem, pem.replace("\n", "\\n"), pem.splitlines()[1], pem.replace("\n", "\r\n")):
        assert private_key(text) == bytes(range(32))
    for text in ("", "no key", pem.replace("MC4", "MC5"), pem.splitlines()[1][:-8]):
        with pytest.raises(ValueError, match="openssl genpkey -algorithm ed25519"):
            private_key(text)
