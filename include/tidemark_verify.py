"""Check certificates of sealed days offline: one file that needs only Python 3.11 or later.

    python3 -I tidemark_verify.py --key public.pem --objects downloads certificates/2025-06-30/0001.json

It shares no code with what writes certificates. The format is in docs/reference/certificate.md.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

FORMAT, SEAL_FORMATS, JSON_VERSION = 1, (1, 2, 3), 1
HOLDS, BROKEN, NOT_FOUND_OUT, USAGE = 0, 1, 2, 64
SHOWN_MAX = 20
_HEX = {32: re.compile("[0-9a-f]{64}"), 64: re.compile("[0-9a-f]{128}")}
_OBJECT = re.compile("^([0-9a-f]{64}) ([0-9]+) (.+)\n", re.MULTILINE)
_SHA256SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_PEM_START = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of Ed25519, RFC 8410
_LATER = "If a later version of Tidemark wrote it, use the tidemark-verify of that version"
_DOWNLOAD = "Download it again from the bucket, and compare with the operator's copy"


# Ed25519, RFC 8032, section 5.1: verification only. Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of -1
Point = tuple[int, int, int, int]


def _add(a: Point, b: Point) -> Point:
    e = (a[1] - a[0]) * (b[1] - b[0]) % _P
    f = (a[1] + a[0]) * (b[1] + b[0]) % _P
    g, h = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    w, x, y, z = f - e, h - g, h + g, f + e
    return w * x % _P, y * z % _P, x * y % _P, w * z % _P


def _times(number: int, point: Point) -> Point:
    found: Point = (0, 1, 1, 0)
    while number:
        if number & 1:
            found = _add(found, point)
        point = _add(point, point)
        number >>= 1
    return found


def _point(text: bytes) -> Point | None:
    """The point that 32 bytes encode; None if they encode none."""
    y = int.from_bytes(text, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def ed25519_verifies(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature of 64 bytes is the key's (32 bytes) for this message."""
    base = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))
    key, r = _point(public_key), _point(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if base is None or key is None or r is None or s >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + public_key + message).digest()
    left = _times(s, base)
    right = _add(r, _times(int.from_bytes(digest, "little") % _ORDER, key))
    return not any((left[axis] * right[2] - right[axis] * left[2]) % _P for axis in (0, 1))


# Results


@dataclass(frozen=True)
class Problem:
    """What is wrong, with both sides, where, and what to do."""

    what: str
    expected: str
    found: str
    where: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what}: expected {self.expected}, found {self.found} [{self.where}]. {self.hint}"


@dataclass
class CheckedCertificate:
    """One certificate.

    - signature: `given key`: one of the given keys signed it. `unknown key`: the key inside the certificate signed it,
      and nothing shows whose key that is. `unsigned`: it shows no change since it was written, but not who wrote it.
    - lost: offsets that Kafka deleted before they were archived, in all logs. `without_row` are further offsets without
      a record, such as those of aborted transactions, and `unexplained` those of them whose cause is not proven.
    - approval: who approved losses or failed warnings, and why.
    - objects: objects in its list. `objects_checked` are those whose bytes were compared.
    - problems: what is wrong. `unknown`: what could not be checked. `notes`: what was not asked for.
    """

    file: str
    stream: str | None = None
    day: str | None = None
    version: int | None = None
    sha256: str | None = None
    signature: Literal["given key", "unknown key", "unsigned"] | None = None
    public_key: str | None = None
    quality: str | None = None
    rows_read: int = 0
    rows_published: int = 0
    rows_quarantined: int = 0
    rows_removed: int = 0
    lost: int = 0
    without_row: int = 0
    unexplained: int = 0
    approval: str | None = None
    objects: int = 0
    objects_checked: int = 0
    bytes_checked: int = 0
    problems: list[Problem] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def wrong(self, what: str, expected: object, found: object, *, where: str = "", hint: str = _DOWNLOAD) -> None:
        self.problems.append(Problem(what, str(expected), str(found), where or self.file, hint))

    def equal(self, what: str, expected: object, found: object, **more: str) -> None:
        if expected != found:
            self.wrong(what, expected, found, **more)


@dataclass
class CheckedCertificates:
    """The verdict is `broken` with one problem, else `unknown` if something could not be checked, else `holds`."""

    verdict: Literal["holds", "broken", "unknown"]
    certificates: list[CheckedCertificate]


class NotCheckedError(Exception):
    """Why nothing could be checked."""

    def __init__(self, what: str, expected: str, found: object, where: object, hint: str) -> None:
        self.parts = {"expected": expected, "found": str(found), "where": str(where), "hint": hint}
        self.message = what
        super().__init__(f"{what}: expected {expected}, found {found} [{where}]. {hint}")


# One certificate


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, without spaces, with a line feed at its end."""
    return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _equal_at_start(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))


def check_certificate(file: str, body: bytes, keys: Iterable[str]) -> tuple[CheckedCertificate, dict[str, Any]]:
    """A certificate's bytes, and the seal in it; the seal is empty if it can't be used."""
    found = CheckedCertificate(file=file)
    try:
        value = json.loads(body)
        if (written := canonical(value)) != body:
            at = _equal_at_start(body, written)
            expected, other = f"{written[at : at + 20]!r} at byte {at}", repr(body[at : at + 20])
            found.wrong("a certificate is not in canonical form", expected, other)
            return found, {}
        form, seal, sha256, signature = value["format"], value["seal"], value["sha256"], value["signature"]
        found.equal("fields of a certificate", ["format", "seal", "sha256", "signature"], sorted(value))
        if form != FORMAT or seal["format"] not in SEAL_FORMATS:
            expected = f"{FORMAT}, of a seal {' or '.join(map(str, SEAL_FORMATS))}"
            found.wrong("unknown format of a certificate", expected, f"{form}, {seal['format']}", hint=_LATER)
            return found, {}
        _check_claims(found, seal)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        found.wrong("a certificate does not parse", f"format {FORMAT}", f"{type(error).__name__}: {error}")
        return found, {}
    message = canonical(seal)
    found.sha256 = hashlib.sha256(message).hexdigest()
    found.equal("SHA-256 of the seal in a certificate", sha256, found.sha256)
    _check_signature(found, signature, message, set(keys))
    return found, {} if found.problems else seal


def _check_signature(found: CheckedCertificate, signature: Any, message: bytes, keys: set[str]) -> None:
    if signature is None:
        found.signature = "unsigned"
        if keys:
            hint = "Ask the operator: the deployment had no key then, or somebody removed the signature"
            expected = f"a signature of key {' or '.join(sorted(keys))}"
            found.wrong("a certificate is unsigned", expected, "none", hint=hint)
        return
    fields = {"public_key": 32, "signature": 64}
    if not isinstance(signature, dict) or signature.keys() != fields.keys():
        found.wrong("a signature does not parse", f"an object with {', '.join(fields)}", repr(signature)[:200])
        return
    for name, size in fields.items():
        if not isinstance(signature[name], str) or not _HEX[size].fullmatch(signature[name]):
            found.wrong("a signature does not parse", f"{2 * size} digits of 0-9a-f", repr(signature[name])[:200])
            return
    found.public_key = signature["public_key"]
    parts = (bytes.fromhex(signature["public_key"]), message, bytes.fromhex(signature["signature"]))
    if not ed25519_verifies(*parts):
        found.wrong("a signature does not fit", f"one of key {found.public_key} for this seal", "another")
    elif keys and found.public_key not in keys:
        hint = "Ask the operator whether the key was changed; give each known key with --key"
        found.wrong("another key signed a certificate", " or ".join(sorted(keys)), found.public_key, hint=hint)
    else:
        found.signature = "given key" if keys else "unknown key"


def _check_claims(found: CheckedCertificate, seal: Any) -> None:
    """What the seal says must agree with itself. Raises KeyError, TypeError and others for what is no seal."""
    found.stream, found.day, found.version = str(seal["stream"]), str(seal["day"]), int(seal["version"])
    found.quality, found.objects = str(seal["quality"]), int(seal["objects"]["count"])
    found.rows_read, found.rows_published = int(seal["rows_read"]), int(seal["rows_published"])
    found.rows_quarantined = int(seal["rows_quarantined"])
    found.rows_removed = int((seal["deduplicated"] or {"removed": 0})["removed"])
    if approval := seal.get("approval"):
        found.approval = f"{approval['by']}: {approval['words']}" if approval["words"] else str(approval["by"])
    kept = found.rows_published + found.rows_quarantined + found.rows_removed
    found.equal("rows published, quarantined and removed", found.rows_read, kept)
    _check_named(found, seal)
    for log in seal["logs"]:
        _check_log(found, log, f"{found.file}, {log['log']['topic']}-{log['log']['partition']}")
    if found.lost and not found.approval:
        found.notes.append(
            "It names nobody who accepted the loss: its stream does so, or an earlier seal names a person."
        )
    if (repeated := seal["rolled_back_to"]) is not None:
        found.notes.append(f"It repeats version {repeated}, to which the day was rolled back.")


def _check_named(found: CheckedCertificate, seal: Any) -> None:
    """What the seal names by SHA-256: its list of objects, and the seals before it."""
    own, before = date.fromisoformat(seal["day"]), seal["previous_day"]
    named = [seal["objects"]["sha256"]]
    named += [seal["previous"]] if seal["version"] > 1 else []
    named += [before["digest"]] if before else []
    if not all(_HEX[32].fullmatch(item) for item in named):
        raise ValueError(f"expected SHA-256 in hex, found {named}")
    if before and not date.fromisoformat(before["day"]) < own:
        found.wrong("the day before", f"a day before {own}", f"{before['day']} version {before['version']}")


def _check_log(found: CheckedCertificate, log: Any, where: str) -> None:
    used, at = [tuple(item["range"]) for item in log["used"]], log["start"]
    for start, end in sorted(used + [tuple(item["range"]) for item in log["gaps"]]):
        if start != at or end <= start:
            found.wrong("used ranges and losses do not tile a log", f"offset {at}", [start, end], where=where)
        at = end
    found.equal("end of a log", log["end"], at, where=where)
    found.lost += sum(item["range"][1] - item["range"][0] for item in log["gaps"])
    for hole in log["holes"]:
        start, end = hole["range"]
        if not any(first <= start and end <= last for first, last in used) or hole["missing"] > end - start:
            text = f"{hole['missing']} in [{start}, {end})"
            found.wrong("a hole is not in a used range", "offsets of one", text, where=where)
        found.without_row += hole["missing"]
        by_cause = hole["evidence"] or {hole["cause"]: hole["missing"]}
        found.unexplained += by_cause.get("unexplained", 0)


# The chain


def check_chain(found: list[tuple[CheckedCertificate, dict[str, Any]]]) -> None:
    """Each certificate names the seals of the version before and of the day before."""
    known: dict[tuple[Any, ...], CheckedCertificate] = {}
    for item, seal in found:
        if seal:
            other = known.setdefault((item.stream, item.day, item.version), item)
            item.equal("two certificates of one version", other.sha256, item.sha256, where=f"{item.file}, {other.file}")
    for item, seal in found:
        if not seal:
            continue
        if seal["version"] > 1:
            _check_link(item, known, seal["day"], seal["version"] - 1, seal["previous"])
        before = seal["previous_day"]
        if before is None:
            item.notes.append("No earlier day was sealed then: the chain of days begins here.")
            continue
        _check_link(item, known, before["day"], before["version"], before["digest"])
        first = date.fromisoformat(before["day"]) + timedelta(1)
        if first.isoformat() != seal["day"]:
            last = date.fromisoformat(seal["day"]) - timedelta(1)
            days = f"{first} was" if first == last else f"{first} to {last} were"
            item.notes.append(f"{days} not sealed then.")


def _check_link(item: CheckedCertificate, known: dict[Any, Any], day: str, version: int, sha256: str) -> None:
    other = known.get((item.stream, day, version))
    if other is None:
        item.notes.append(f"It follows {day} version {version}, whose certificate was not given: SHA-256 {sha256}.")
    else:
        item.equal("SHA-256 of a certificate before", sha256, other.sha256, where=f"{item.file}, {other.file}")


# Objects


class StoredObjects:
    """Objects in a folder, or in a listing that sha256sum has printed."""

    def __init__(self, path: Path) -> None:
        self._listed = {} if path.is_dir() else _listing(path)
        names = self._listed or (Path(folder, name) for folder, _, files in os.walk(path) for name in files)
        self._by_name: dict[str, list[str]] = {}
        for name in map(str, names):
            self._by_name.setdefault(Path(name).name, []).append(name)

    def find(self, key: str) -> str | None:
        """The object of a key: of the same name, with the most folders in common before it."""
        wanted = key.split("/")[::-1]
        found = self._by_name.get(wanted[0], [])
        return max(found, key=lambda name: _equal_at_start(name.split("/")[::-1], wanted), default=None)

    def sha256(self, name: str) -> str:
        if name in self._listed:
            return self._listed[name]
        with Path(name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _listing(path: Path) -> dict[str, str]:
    lines = [
        (line, _SHA256SUM.fullmatch(line)) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    for number, (line, found) in enumerate(lines, 1):
        if found is None:
            expected, hint = "a line of sha256sum: <hash>  <path>", "Make it with sha256sum"
            raise NotCheckedError("a listing does not parse", expected, line[:200], f"{path}, line {number}", hint)
    return {found[2]: found[1] for _, found in lines if found}


def check_objects(item: CheckedCertificate, seal: dict[str, Any], objects: StoredObjects) -> None:
    """Compare the objects in the certificate's list, which lies beside it."""
    wanted = seal["objects"]
    path = Path(item.file).parent / f"{wanted['sha256']}.objects"
    try:
        body = path.read_bytes()
    except OSError as error:
        item.unknown.append(
            f"The list of its objects can't be read: {error}. Download it into the certificate's folder."
        )
        return
    if (digest := hashlib.sha256(body).hexdigest()) != wanted["sha256"]:
        item.wrong("SHA-256 of the list of objects", wanted["sha256"], digest, where=str(path))
        return
    listed = [(key, int(size), sha256) for sha256, size, key in _OBJECT.findall(body.decode("utf-8", "replace"))]
    lines, total = body.count(b"\n"), sum(size for _, size, _ in listed)
    item.equal("lines of the list of objects", wanted["count"], lines, where=str(path))
    item.equal("lines of the list that name an object", lines, len(listed), where=str(path))
    item.equal("bytes of all listed objects", wanted["bytes"], total, where=str(path))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(lambda one: objects.sha256(name) if (name := objects.find(one[0])) else None, listed))
    for (key, size, sha256), found in zip(listed, digests, strict=True):
        if found is not None:
            hint = "Download it again; if it still differs, the object was changed after it was archived"
            item.equal("SHA-256 of an object", sha256, found, where=key, hint=hint)
            item.objects_checked, item.bytes_checked = item.objects_checked + 1, item.bytes_checked + size
    if missing := digests.count(None):
        item.unknown.append(
            f"{missing:,} of {len(listed):,} objects were not given. Download them. If the archive was compacted since,"
            " they may be deleted: 'tidemark verify' then compares the rows."
        )


# The command


def read_key(text: str) -> str:
    """The digits of a public key: of 64 hexadecimal digits, or of a PEM file (``openssl pkey -pubout``)."""
    if _HEX[32].fullmatch(text):
        return text
    body = Path(text).read_text(encoding="ascii", errors="replace")
    lines = [line.strip() for line in body.splitlines() if line and "-----" not in line]
    try:
        found = base64.b64decode("".join(lines), validate=True)
    except ValueError:
        found = b""
    if len(found) != 44 or not found.startswith(_PEM_START):
        hint = "Take the public key: openssl pkey -in private.pem -pubout"
        raise NotCheckedError(
            "a public key does not parse", "a PEM file of an Ed25519 public key", "another", text, hint
        )
    return found[12:].hex()


def check(files: Iterable[str], keys: Iterable[str] = (), objects: str | None = None) -> CheckedCertificates:
    """Check files. Raises OSError and NotCheckedError for what can't be read."""
    known = [read_key(key) for key in keys]
    stored = StoredObjects(Path(objects)) if objects else None
    found = [check_certificate(file, Path(file).read_bytes(), known) for file in files]
    check_chain(found)
    for item, seal in found:
        if stored and seal:
            check_objects(item, seal, stored)
        elif seal:
            item.notes.append(f"Its {item.objects:,} objects were not compared: give them with --objects.")
    results = [item for item, _ in found]
    broken, unknown = any(item.problems for item in results), any(item.unknown for item in results)
    return CheckedCertificates("broken" if broken else "unknown" if unknown else "holds", results)


def print_text(found: CheckedCertificates) -> None:
    """The certificates for people."""
    signed = {
        "given key": "signed by the given key",
        "unknown key": "signed by a key that was not compared; give the operator's with --key",
        "unsigned": "UNSIGNED: it shows later changes, but not who wrote it",
        None: "not checked",
    }
    for item in found.certificates:
        state = "broken" if item.problems else "unknown" if item.unknown else "holds"
        _say(f"{item.stream} {item.day} version {item.version}: {state}" if item.stream else f"{item.file}: {state}")
        if item.sha256:
            _say(f"  SHA-256    {item.sha256}")
            _say(f"  Signature  {signed[item.signature]}{f' ({item.public_key})' if item.public_key else ''}")
            _say(
                f"  Rows       {item.rows_read:,} read = {item.rows_published:,} published"
                f" + {item.rows_quarantined:,} quarantined + {item.rows_removed:,} removed as duplicates"
            )
            _say(
                f"  Offsets    {item.lost:,} lost, {item.without_row:,} without a row"
                f" ({item.unexplained:,} of them unexplained)"
            )
            _say(f"  Checks     {item.quality}{f', approved by {item.approval}' if item.approval else ''}")
            _say(f"  Objects    {item.objects_checked:,} of {item.objects:,} compared, {item.bytes_checked:,} bytes")
        more = len(item.problems) - SHOWN_MAX
        for label, texts in (
            ("WRONG", [*item.problems[:SHOWN_MAX], *([f"and {more:,} more: see --json"] if more > 0 else [])]),
            ("Unknown", item.unknown),
            ("Note", item.notes),
        ):
            for text in texts:
                _say(f"  {label:10} {text}")
    _say(f"Verdict: {found.verdict}")


def _say(text: str) -> None:
    """Print one line. What a certificate says can't begin another one."""
    print("".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text))


def print_json(result: CheckedCertificates | None, error: dict[str, str | None] | None = None) -> None:
    """The form of every command's --json."""
    value = {"version": JSON_VERSION, "command": "tidemark-verify"}
    print(json.dumps({**value, "result": asdict(result) if result else None, "error": error}, indent=2))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code."""
    parser = _Parser(prog="tidemark-verify", description="Check certificates of sealed days, without any server.")
    parser.add_argument("certificate", nargs="+", help="a certificate's file; several are checked as a chain")
    parser.add_argument("--key", action="append", default=[], help="public key: PEM file, or 64 hex digits; repeatable")
    parser.add_argument("--objects", help="a folder of downloaded objects, or a file that sha256sum printed of them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    try:
        found = check(asked.certificate, asked.key, asked.objects)
    except (OSError, NotCheckedError) as error:
        if asked.json:
            parts = dict.fromkeys(("expected", "found", "where", "hint")) | getattr(error, "parts", {})
            print_json(None, {"kind": type(error).__name__, "message": getattr(error, "message", str(error)), **parts})
        else:
            print(f"tidemark-verify: {error}", file=sys.stderr)
        return NOT_FOUND_OUT
    print_json(found) if asked.json else print_text(found)
    return {"holds": HOLDS, "broken": BROKEN, "unknown": NOT_FOUND_OUT}[found.verdict]


if __name__ == "__main__":
    sys.exit(main())
