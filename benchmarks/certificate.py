"""How long ``tidemark-verify`` takes to check a day's certificate with its downloaded objects.

The objects are written by the archive's own encoder into a local folder: 4 partitions, 100,000 records of 200 bytes in
each object. The certificate is signed. The check runs as an auditor runs it: one file, a Python without packages. Its
time includes the start of Python. The objects are in the page cache, so this is the time to list and hash them, without
the time of the disk or the download.

The last line is JSON: objects, bytes, seconds, and the seconds for 100 million records at the same rate.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.common import PARTITIONS, console, progress
from benchmarks.overlapping import CHUNK_RECORDS, DAY, LOGS, RANGE_RECORDS, day_rows
from tests.core.worlds import seal_of
from tidemark.core.certificate import SealSignature, certify
from tidemark.core.layout import DataName, Layout
from tidemark.core.object_list import day_objects
from tidemark.core.offsets import OffsetRange
from tidemark.core.plan import RowsOfDay, Slice, Used
from tidemark.core.seal import SealedLog
from tidemark.installation import PROJECT
from tidemark.objects.encoder import Encoder
from tidemark.objects.footer import Footer

LAYOUT = Layout(prefix="lake", stream="rides")
PAPER_RECORDS = 100_000_000


def main() -> None:
    """Write the objects, check them, print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    records = parser.parse_args().records // PARTITIONS * PARTITIONS
    with TemporaryDirectory() as folder:
        slices = write_objects(Path(folder), records // PARTITIONS)
        file, key = write_certificate(Path(folder), slices, records)
        script = str(PROJECT / "include" / "tidemark_verify.py")
        command = [sys.executable, "-I", "-S", script, "--json", "--key", key, "--objects", folder, str(file)]
        began = time.monotonic()
        shown = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.monotonic() - began
    (found,) = json.loads(shown.stdout)["result"]["certificates"]
    if found["objects_checked"] != len(slices) or found["signature"] != "given key":
        raise SystemExit(f"the check did not compare every object: {found}")
    size = found["bytes_checked"]
    console.print(
        f"{records:,} records in {len(slices):,} objects of {size / 1e6:,.0f} MB together: {seconds:.2f} s,"
        f" {size / 1e6 / seconds:,.0f} MB/s. At this rate {PAPER_RECORDS:,} records take"
        f" {seconds * PAPER_RECORDS / records:.0f} s."
    )
    result = {"objects": len(slices), "bytes": size, "seconds": round(seconds, 2)}
    sys.stdout.write(
        json.dumps({**result, "seconds_of_100_million": round(seconds * PAPER_RECORDS / records, 1)}) + "\n"
    )


def write_objects(folder: Path, end: int) -> list[Slice]:
    """The objects of every log up to ``end``, below the folder, as a plan names them."""
    ranges = [OffsetRange(start=at, end=min(at + RANGE_RECORDS, end)) for at in range(0, end, RANGE_RECORDS)]
    jobs = [(partition, part) for partition in range(PARTITIONS) for part in ranges]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool, progress() as bar:
        task = bar.add_task("writing objects", total=end * PARTITIONS)
        found = []
        for item in pool.map(partial(_write, folder, end), jobs):
            found.append(item)
            bar.advance(task, len(item.range))
    return found


def _write(folder: Path, end: int, job: tuple[int, OffsetRange]) -> Slice:
    log, part = LOGS[job[0]], job[1]
    path = f"partition={log.partition}"
    key = LAYOUT.data_key(DataName(path=path, topic=log.topic, partition=log.partition, range=part, seq=0))
    file = folder / key
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as sink:
        encoder = Encoder(sink)
        for start in range(part.start, part.end, CHUNK_RECORDS):
            rows = day_rows(log, end, start, min(start + CHUNK_RECORDS, part.end))
            encoder.add(rows, sum(pc.sum(pc.binary_length(rows.column(name))).as_py() for name in ("key", "value")))
        own = {"rows": len(part), "first_offset": part.start, "last_offset": part.end - 1}
        encoder.finish(Footer(**own, checksum="", settings="", topic_id=log.topic_id))
    body = file.read_bytes()
    return Slice(
        key=key,
        log=log,
        range=part,
        whole=True,
        bytes=len(body),
        sha256=sha256(body).hexdigest(),
        rows=(RowsOfDay(day=DAY, rows=len(part)),),
    )


def write_certificate(folder: Path, slices: list[Slice], records: int) -> tuple[Path, str]:
    """The file of a signed certificate, with its list of objects beside it, and the public key."""
    end = records // PARTITIONS
    span = OffsetRange(start=0, end=end)
    used = (Used(range=span, committed=span, writer="query", batch=0, last_batch=end // RANGE_RECORDS),)
    objects, body = day_objects(slices, DAY)
    logs = [SealedLog(log=log, start=0, end=end, used=used, gaps=(), holes=()) for log in LOGS]
    seal = replace(
        seal_of(DAY, logs),
        stream=LAYOUT.stream,
        time_zone="UTC",
        rows_read=records,
        rows_published=records,
        objects=objects,
    )
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw().hex()
    file = folder / LAYOUT.certificate_key(DAY, 1)
    file.parent.mkdir(parents=True)
    signed = certify(seal, lambda message: SealSignature(public_key=public, signature=key.sign(message).hex()))
    file.write_bytes(signed.to_json())
    (folder / LAYOUT.object_list_key(DAY, objects.sha256)).write_bytes(body)
    return file, public


if __name__ == "__main__":
    main()
