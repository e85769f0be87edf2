"""Plans from manifests and seals alone: the expectation that the ledger's plans are compared with."""

from collections.abc import Collection, Sequence
from datetime import date

from tidemark.core.committed import Committed
from tidemark.core.manifest import Manifest, replaced_by
from tidemark.core.offsets import TopicPartition
from tidemark.core.plan import Plan, Target
from tidemark.core.planner import NO_PREFERENCE, Preference, files_by_range, plan_committed
from tidemark.core.seal import Seal, require_same_stream, seen_days


def make_plan(
    *,
    stream: str,
    time_zone: str,
    run: str,
    requested: Sequence[date],
    targets: Sequence[Target],
    manifests: Sequence[Manifest],
    seals: Sequence[Seal],
    force: bool = False,
    scheduled: bool = False,
    reopen_from: date | None = None,
    unproven: Collection[date] = (),
    prefer: Preference = NO_PREFERENCE,
) -> Plan:
    """The plan of ``plan_committed``; the order of the inputs does not matter.

    Manifests of a log that is no target (a recreated topic has another id) cover nothing. Raises ConflictError for a
    manifest or seal of another stream or time zone.
    """
    for manifest in manifests:
        require_same_stream(
            stream, time_zone, manifest.stream, manifest.time_zone, f"manifest {manifest.writer}/{manifest.batch}"
        )
    return plan_committed(
        stream=stream,
        run=run,
        requested=requested,
        targets=targets,
        committed=_index(targets, manifests),
        seen=seen_days(seals, stream=stream, time_zone=time_zone),
        force=force,
        scheduled=scheduled,
        reopen_from=reopen_from,
        unproven=unproven,
        prefer=prefer,
    )


def _index(targets: Sequence[Target], manifests: Sequence[Manifest]) -> dict[TopicPartition, list[Committed]]:
    """Each target's committed ranges that none replaces, in an order that does not depend on the manifests'."""
    found: dict[TopicPartition, list[Committed]] = {target.log: [] for target in targets}
    replaced = replaced_by(manifests)
    for manifest in manifests:
        files = files_by_range(manifest)
        for item in manifest.ranges:
            if item.log in found and (manifest.writer, manifest.batch, item.log) not in replaced:
                found[item.log].append(
                    Committed(
                        range=item.range,
                        writer=manifest.writer,
                        batch=manifest.batch,
                        rows=item.rows,
                        files=tuple(files[item.log, item.range]),
                        day_settings=manifest.day_settings,
                    )
                )
    for ranges in found.values():
        ranges.sort(key=lambda item: (item.range, item.writer, item.batch))
    return found
