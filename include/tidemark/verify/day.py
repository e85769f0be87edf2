"""``verify``: recompute a sealed day's proof from the archive, the tables and Kafka, and compare it with the seal.

Nothing comes from the plan, the ledger or the seal's figures. The seal claims which offsets are in which snapshots. All
of the day's archive and tables are read, and all of Kafka's records that are left.
"""

import time
from collections.abc import Callable
from datetime import date

from pyiceberg.table import Table

from tidemark.core.instruments import VERIFY_DIFFERENCES
from tidemark.core.layout import Layout
from tidemark.core.offsets import count
from tidemark.core.seal import Seal
from tidemark.definitions.stream import Stream, load_stream
from tidemark.objects.bits import OffsetBits
from tidemark.s3 import ObjectStore
from tidemark.settings import Settings
from tidemark.tables.reader import load_table
from tidemark.tables.snapshot_summary import RUN_PROPERTY
from tidemark.tables.snapshots import published_at, quarantined_at
from tidemark.telemetry.steps import export_step
from tidemark.verify.archive import ArchiveReader, Derived
from tidemark.verify.claims import Claims, compare_copies, compare_lost, compare_ranges, compare_reach, read_claims
from tidemark.verify.day_copies import SealedCopies
from tidemark.verify.kafka_check import KafkaSide
from tidemark.verify.losses import compare_losses
from tidemark.verify.readers import compare_readers
from tidemark.verify.result import ProofPart, Verification
from tidemark.verify.rows import Rows, repeated_keys
from tidemark.verify.sides import DaySides, damage_found, read_rows

Progress = Callable[[str], None]


def verify_day(
    settings: Settings, stream_name: str, day: date, version: int | None = None, progress: Progress = lambda _: None
) -> Verification:
    """Recompute the proof of a day and compare it with the seal of a version, the latest by default.

    Raises ConfigError for an unknown stream, RequestError for what was never sealed, ServiceError if S3 does not
    answer. If Kafka does not answer, its checks are unknown. The metrics of step ``verify`` are exported.
    """
    stream = load_stream(stream_name, settings.streams_dir)
    began = time.monotonic()
    found = None
    try:
        found = _verify(settings, stream, day, version, progress)
    finally:
        export_step(
            deployment=settings.deployment,
            stream=stream.name,
            step="verify",
            seconds=time.monotonic() - began,
            failed=found is None,
            figures={} if found is None else {VERIFY_DIFFERENCES: sum(check.total for check in found.checks)},
        )
    return found


def _verify(settings: Settings, stream: Stream, day: date, version: int | None, progress: Progress) -> Verification:
    store, layout = ObjectStore(settings), Layout(prefix=settings.prefix, stream=stream.name)
    sealed = ProofPart(name="seal")
    claims = read_claims(store, layout, stream.time_zone, day, version, check=sealed)
    if claims.seal is None:
        return _result(stream, day, claims, [sealed])
    chains, files = ProofPart(name="manifests"), ProofPart(name="objects")
    reader = ArchiveReader(store, layout, day, stream.zone)
    archive = reader.derive(claims.basis, chains, files, progress)
    _set_aside(claims.seal, archive)
    ranges = ProofPart(name="ranges")
    compare_ranges(claims.seal, archive, layout, ranges)
    compare_reach(claims.seal, claims.basis, archive, ranges)
    copies = ProofPart(name="copies")
    sealed_copies = SealedCopies(store=store, layout=layout, zone=stream.zone, check=copies, progress=progress)
    sealed_copies.compare_day(claims.seal, archive, latest=claims.latest)
    losses = ProofPart(name="losses")
    compare_losses(settings, stream, claims.seal, archive, losses)
    compare_lost(claims.seal, claims.basis, archive, layout, losses)
    table, readers = ProofPart(name="tables"), ProofPart(name="readers")
    sides = _tables(settings, stream, claims, archive, table)
    _compare_rows(sides, table)
    counts, changes = ProofPart(name="counts"), ProofPart(name="difference")
    _compare_counts(sides, counts)
    _compare_difference(settings, stream, claims, sides, changes)
    compare_readers(settings, stream, claims, sides, readers)
    kafka, holes = ProofPart(name="kafka"), ProofPart(name="holes")
    KafkaSide(
        settings=settings, stream=stream, seal=claims.seal, reader=reader, archive=archive, kafka=kafka, holes=holes
    ).compare(progress)
    checks = [sealed, chains, files, ranges, copies, losses, table, counts, changes, readers, kafka, holes]
    return _result(stream, day, claims, checks)


def _result(stream: Stream, day: date, claims: Claims, checks: list[ProofPart]) -> Verification:
    seal = claims.seal
    gaps = [gap.range for item in seal.logs for gap in item.gaps] if seal is not None else []
    return Verification(
        stream=stream.name,
        day=day.isoformat(),
        version=claims.version,
        seal=claims.key,
        lost=count([*gaps, *(item.range for item in seal.truncated)]) if seal is not None else 0,
        approval=seal.approval if seal is not None else None,
        checks=tuple(checks),
    )


def _set_aside(seal: Seal, archive: Derived) -> None:
    """Rows at offsets that the seal did not use are no part of it: they are late, or ``compare_reach`` names them."""
    for log in archive.rows:
        sealed = seal.log(log)
        archive.keep(log, [used.range for used in sealed.used] if sealed is not None else [])


def _tables(settings: Settings, stream: Stream, claims: Claims, archive: Derived, check: ProofPart) -> DaySides:
    seal = claims.seal
    assert seal is not None
    table, quarantine = load_table(settings, stream.table), load_table(settings, stream.quarantine_table)
    held = aside = None
    with damage_found(settings, table, check, f"{stream.table}, in place of snapshot {seal.snapshot_id}"):
        held = published_at(table, seal)
    where = f"{stream.quarantine_table}, in place of snapshot {seal.quarantine_snapshot_id}"
    with damage_found(settings, quarantine, check, where):
        aside = quarantined_at(quarantine, seal)
    sides = (
        (table, stream.table, seal.snapshot_id, held),
        (quarantine, stream.quarantine_table, seal.quarantine_snapshot_id, aside),
    )
    found = [_rows(settings, *side, seal=seal, archive=archive, check=check) for side in sides]
    if seal.deduplicated is not None and found[0] is not None and table is not None and held is not None:
        key, where = seal.deduplicated.key, f"{stream.table}, snapshot {held}"
        with damage_found(settings, table, check, where):
            repeated = repeated_keys(table, held, seal.day, key)
            if repeated is None:
                check.notes.append(f"keys are not compared: {where} has no columns {', '.join(key)}")
            else:
                check.equal(f"rows with the {', '.join(key)} of another one", expected=0, found=repeated, where=where)
    return DaySides(seal=seal, table=table, archive=archive, published=found[0], quarantined=found[1])


def _rows(
    settings: Settings,
    table: Table | None,
    name: str,
    sealed: int | None,
    held: int | None,
    *,
    seal: Seal,
    archive: Derived,
    check: ProofPart,
) -> Rows | None:
    """The day's rows in the sealed snapshot, or in another with them once that has expired."""
    snapshot = table.snapshot_by_id(held) if table is not None and held is not None else None
    if table is None or snapshot is None:
        check.unknown.append(f"{name}: snapshot {sealed} has expired; its rows can't be read any more")
        return None
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    where = f"{name}, snapshot {held}"
    if held == sealed:
        run = summary.get(RUN_PROPERTY)
        check.equal("the run that published a snapshot", expected=seal.run, found=run, where=where)
    else:
        check.notes.append(f"{name}: snapshot {sealed} has expired; the files that it added are in snapshot {held}")
    rows = read_rows(settings, table, snapshot.snapshot_id, seal.day, archive, where=where, check=check)
    if rows is not None:
        check.derived_from += f"{'; ' if check.derived_from else ''}{rows.rows:,} rows of {where}"
    return rows


def _compare_rows(sides: DaySides, check: ProofPart) -> None:
    """Every archived row of the day is published or quarantined once, and no other row is."""
    published, quarantined, archive = sides.published, sides.quarantined, sides.archive
    if published is None or quarantined is None:
        return
    for name, rows in (("published", published), ("quarantined", quarantined)):
        if rows.doubled:
            check.differs(f"records {name} more than once", expected=0, found=rows.doubled, where=sides.seal.day)
        for (topic_id, partition), number in rows.strays.items():
            if number:
                where = f"topic id {topic_id}, partition {partition}"
                check.differs(f"rows {name} that the archive does not have", expected=0, found=number, where=where)
    if archive.all_missing:
        return
    for log, own in archive.rows.items():
        both = OffsetBits(own.window)
        both.bits = published.offsets[log].bits | quarantined.offsets[log].bits
        twice = OffsetBits(own.window)
        twice.bits = published.offsets[log].bits & quarantined.offsets[log].bits
        one = "published or quarantined"
        check.ranges("archived but in no table", own.without(both), expected=one, found="neither", log=log)
        check.ranges(
            "in a table but not archived", both.without(own), expected="an archived row", found="none", log=log
        )
        check.ranges("in both tables", twice.ranges(), expected=one, found="both", log=log)
        stands = quarantined.kept[log].without(published.offsets[log])
        check.ranges("kept of duplicates by key", stands, expected="published", found="no row", log=log)


def _compare_counts(sides: DaySides, check: ProofPart) -> None:
    seal, archive = sides.seal, sides.archive
    where = f"seal of {seal.day} version {seal.version}"
    read = sum(len(bits) for bits in archive.rows.values())
    copies = sum(archive.copies.values())
    if archive.missing:
        check.notes.append("rows_read and duplicates_trimmed are not compared: objects are missing")
    else:
        check.equal("rows_read", expected=read, found=seal.rows_read, where=where)
        compare_copies(seal, archive, check)
    published, aside = sides.published, sides.quarantined
    for name, number, claimed in (
        ("rows_published", published and published.rows, seal.rows_published),
        ("rows_quarantined", aside and aside.rows - aside.removed, seal.rows_quarantined),
        ("duplicates removed by key", aside and aside.removed, seal.rows_removed),
    ):
        if number is None:
            check.unknown.append(f"{name}: the table can't be read")
        else:
            check.equal(name, expected=number, found=claimed, where=where)
    if published is not None and aside is not None:
        found = f"{published.rows:,} published + {aside.rows - aside.removed:,} quarantined"
        if seal.deduplicated is not None:
            found += f" + {aside.removed:,} removed as duplicates by key"
        check.derived_from = f"{copies:,} archived rows, {read:,} distinct = {found}"
    if archive.elsewhere:
        check.notes.append(
            f"{archive.elsewhere:,} rows that other copies put into this day are of another day in the used copies"
        )
    left_out = archive.left_out
    if later := archive.late + archive.unused - left_out:
        check.notes.append(f"{later:,} archived rows of the day are later copies of archived records")
    if left_out:
        check.notes.append(
            f"{left_out:,} archived records of the day are not part of this version: they came later, or a rollback"
            " left them out"
        )


def _compare_difference(settings: Settings, stream: Stream, claims: Claims, sides: DaySides, check: ProofPart) -> None:
    """The numbers of rows added and removed since the version before, but not of changed values."""
    seal, claimed, table, published = sides.seal, sides.seal.difference, sides.table, sides.published
    if claimed is None:
        one = (
            "the day's first version" if seal.version == 1 else "the version before had expired at the time of sealing"
        )
        check.derived_from = f"nothing: {one}"
        return
    snapshot = None
    with damage_found(settings, table, check, f"{stream.table}, the rows of version {seal.version - 1}"):
        snapshot = published_at(table, claims.before) if claims.before is not None else None
    if table is None or snapshot is None or published is None:
        check.derived_from, check.expired = "nothing: the rows of one of the two versions have expired", True
        return
    where = f"{stream.table}, snapshot {snapshot}"
    before = read_rows(settings, table, snapshot, seal.day, sides.archive, where=where, check=check)
    if before is None:
        return
    check.derived_from = f"{before.rows:,} rows of {where}, beside this version's"
    both = sum(bits.common(before.offsets[log]) for log, bits in published.offsets.items())
    where = f"seal of {seal.day} version {seal.version}"
    check.equal("rows added", expected=published.rows - both, found=claimed.added, where=where)
    check.equal("rows removed", expected=before.rows - both, found=claimed.removed, where=where)
    if claimed.changed > both:
        check.differs("rows changed", expected=f"at most the {both} of both", found=claimed.changed, where=where)
