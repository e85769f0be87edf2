"""Certificates after the seals: written once, again after a crash, and checked with downloaded objects."""

import hashlib
import json
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import tidemark_verify
from tests.batch.logs import MONDAY, TUESDAY, Log, at
from tests.batch.test_seal import PASSED, finalized, finish, two_days
from tidemark.core.errors import ServiceError
from tidemark.reconcile.seal import seal_run
from tidemark.run import Run
from tidemark.verify.day import verify_day

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw().hex()


def signing(run: Run) -> Run:
    """The run with a private key in its settings."""
    pem = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    values = {**run.settings.model_dump(), "certificate_key": pem}
    return replace(run, settings=type(run.settings).model_validate(values))


def reconciled(log: Log, name: str, *days: tuple[date, int], sign: bool = False) -> Run:
    """A run of these days up to its seals."""
    run = finalized(log, name, *(day for day, _ in days))
    finish(run, dict(days), checks=(PASSED,))
    run = signing(run) if sign else run
    seal_run(run)
    return run


def bodies(log: Log) -> dict[str, bytes]:
    """Every certificate and list of objects by its key."""
    return {item.key: log.store.get(item.key) or b"" for item in log.store.list(log.layout.certificate_prefix)}


def downloaded(log: Log, folder: Path) -> list[str]:
    """Everything below the stream's certificates and data; the certificates' files."""
    for prefix in (log.layout.certificate_prefix, log.layout.data_prefix):
        for item in log.store.list(prefix):
            path = folder / item.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(log.store.get(item.key) or b"")
    return sorted(str(path) for path in (folder / log.layout.certificate_prefix).rglob("*.json"))


def test_sealed_days_get_certificates_that_hold_with_their_objects(log: Log, tmp_path: Path) -> None:
    two_days(log)
    reconciled(log, "run-1", (MONDAY, 10), (TUESDAY, 5), sign=True)
    files = downloaded(log, tmp_path)
    days = [log.layout.certificate_key(day, 1).rpartition("/")[0] for day in (MONDAY, TUESDAY)]
    assert files == [str(tmp_path / day / "0001.json") for day in days]
    found = tidemark_verify.check(files, [PUBLIC], str(tmp_path))
    assert found.verdict == "holds"
    monday, tuesday = found.certificates
    assert (monday.rows_read, monday.objects, monday.objects_checked, monday.signature) == (10, 1, 1, "given key")
    assert (tuesday.rows_read, tuesday.notes) == (5, [])
    (path,) = (tmp_path / log.layout.data_prefix).rglob("*.parquet")
    (listed,) = (tmp_path / days[0]).glob("*.objects")
    body = path.read_bytes()
    line = f"{hashlib.sha256(body).hexdigest()} {len(body)} {path.relative_to(tmp_path)}\n"
    assert listed.read_text(encoding="utf-8") == line
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    assert tidemark_verify.check(files, [PUBLIC], str(tmp_path)).verdict == "broken"


def test_a_certificate_has_the_bytes_of_its_seal_and_says_that_it_is_unsigned(log: Log) -> None:
    two_days(log)
    reconciled(log, "run-1", (MONDAY, 10))
    seal = log.store.get(log.layout.seal_key(MONDAY, 1))
    assert seal is not None
    value = {"format": 1, "seal": json.loads(seal), "sha256": hashlib.sha256(seal).hexdigest(), "signature": None}
    certificate = log.store.get(log.layout.certificate_key(MONDAY, 1))
    assert certificate == (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()


def test_a_crash_between_seal_and_certificate_costs_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    two_days(log)
    reconciled(log, "run-1", (MONDAY, 10), sign=True)
    before = bodies(log)
    key = log.layout.certificate_key(MONDAY, 1)
    log.store.delete(key)
    run = signing(finalized(log, "run-2", TUESDAY))
    finish(run, {TUESDAY: 5})

    def killed(*_: object, **__: object) -> None:
        raise ServiceError("S3 put failed", where=key)

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.reconcile.seal.add_certificates", killed)
        with pytest.raises(ServiceError):
            seal_run(run)
    assert log.layout.certificate_key(TUESDAY, 1) not in bodies(log)
    seal_run(run)
    after = bodies(log)
    assert before.items() <= after.items()
    assert len(after) == 4
    seal_run(run)
    assert bodies(log) == after


def test_another_key_signs_what_is_written_from_then_on(log: Log) -> None:
    two_days(log)
    reconciled(log, "run-1", (MONDAY, 10))
    unsigned = bodies(log)
    reconciled(log, "run-2", (TUESDAY, 5), sign=True)
    found = bodies(log)
    assert unsigned.items() <= found.items()
    assert json.loads(found[log.layout.certificate_key(TUESDAY, 1)])["signature"]["public_key"] == PUBLIC
    log.store.delete(log.layout.certificate_key(MONDAY, 1))  # what the documentation says to do after a change
    log.produce(1, at(TUESDAY, 10))
    log.archive(15, 16)
    reconciled(log, "run-3", (TUESDAY, 6), sign=True)
    value = json.loads(bodies(log)[log.layout.certificate_key(MONDAY, 1)])
    assert value["signature"]["public_key"] == PUBLIC
    assert value["sha256"] == json.loads(unsigned[log.layout.certificate_key(MONDAY, 1)])["sha256"]


def test_a_reopened_day_follows_its_version_and_the_day_before(log: Log, tmp_path: Path) -> None:
    two_days(log)
    reconciled(log, "run-1", (TUESDAY, 5))
    reconciled(log, "run-2", (MONDAY, 10))  # later: the first version of Tuesday does not know it
    log.produce(2, at(TUESDAY, 9))
    log.archive(15, 17)
    reconciled(log, "run-3", (TUESDAY, 7))
    found = tidemark_verify.check(downloaded(log, tmp_path), (), str(tmp_path))
    assert found.verdict == "holds"
    monday, first, second = found.certificates
    begins = "No earlier day was sealed then: the chain of days begins here."
    assert (monday.notes, first.notes, second.notes) == ([begins], [begins], [])
    assert (first.objects, second.objects, second.objects_checked) == (1, 2, 2)
    seal = json.loads(Path(second.file).read_bytes())["seal"]
    assert (seal["previous"], seal["previous_day"]["digest"]) == (first.sha256, monday.sha256)


def test_verify_finds_a_changed_list_and_another_day_before(log: Log) -> None:
    two_days(log)
    reconciled(log, "run-1", (MONDAY, 10), (TUESDAY, 5))

    def differences() -> dict[str, str]:
        found = verify_day(log.settings, log.stream.name, TUESDAY)
        return {item.what: item.where for item in found.checks[0].differences}

    assert differences() == {}
    (listed,) = (key for key in bodies(log) if f"/{TUESDAY}/" in key and key.endswith(".objects"))
    log.store.put(listed, bodies(log)[listed][:-1])
    assert differences() == {"the list of objects": listed}
    log.store.delete(listed)
    before = log.layout.seal_key(MONDAY, 1)
    log.store.put(before, (log.store.get(before) or b"").replace(b'"rows_read":10', b'"rows_read":11'))
    assert differences() == {"the list of objects": listed, "the seal of the day before": before}


def test_the_private_key_is_in_no_object(log: Log) -> None:
    two_days(log)
    run = reconciled(log, "run-1", (MONDAY, 10), sign=True)
    secret = run.settings.certificate_key.get_secret_value()
    body = re.sub(r"-----.*?-----|\s", "", secret).encode()
    prefixes = (log.layout.certificate_prefix, log.layout.seal_prefix, log.layout.run_prefix)
    found = [log.store.get(item.key) or b"" for prefix in prefixes for item in log.store.list(prefix)]
    assert len(found) > 5
    assert not any(text in item for item in found for text in (body, bytes(range(32)).hex().encode()))
