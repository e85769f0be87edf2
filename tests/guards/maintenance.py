"""Guards of ledger, compaction and deletion: what is compacted stays true, and nothing that is needed goes."""

from tests.guards.guard import Guard

_LEDGER_DAMAGE = "tests/archive/test_ledger.py::test_a_damaged_ledger_is_reported_and_can_be_rebuilt_from_the_manifests"

GUARDS = (
    Guard(
        name="ledger-digest",
        promise="A ledger segment with a changed byte is refused.",
        path="include/tidemark/archive/ledger/segment.py",
        old="if actual.encode() != found:",
        new="if False:",
        tests=(_LEDGER_DAMAGE,),
    ),
    Guard(
        name="ledger-last-manifest",
        promise="The ledger is refused where a writer's last compacted manifest has changed.",
        path="include/tidemark/archive/ledger/ledger.py",
        old="if body is None or digest(body) != position.digest:",
        new="if False:",
        tests=(_LEDGER_DAMAGE,),
    ),
    Guard(
        name="upload-age",
        promise="Maintenance aborts only uploads that are too old to belong to a running task.",
        path="include/tidemark/maintenance/archive.py",
        old="stale = tuple(item for item in uploads if item.started < before)",
        new="stale = tuple(uploads)",
        tests=(("tests/archive/test_maintenance.py::test_only_the_streams_own_stale_uploads_are_aborted"),),
    ),
    Guard(
        name="compaction-input-read",
        promise="Compaction copies no row of an object that does not hold what its manifest says.",
        path="include/tidemark/maintenance/compaction.py",
        old="if checksum.value != file.checksum:",
        new="if False:",
        tests=("tests/archive/test_compaction.py::test_a_damaged_input_is_named_and_nothing_becomes_visible",),
    ),
    Guard(
        name="replaced-is-complete",
        promise="A manifest replaces only ranges that its own complete range tiles.",
        path="include/tidemark/core/manifest.py",
        old="_require_tiles(self)",
        new="pass",
        tests=(
            "tests/archive/test_compacted_plans.py::test_a_manifest_that_replaces_only_part_of_its_range_is_refused",
        ),
    ),
    Guard(
        name="replaced-age",
        promise="Objects of a replaced range stay for a week, for runs that were planned with them.",
        path="include/tidemark/maintenance/replaced.py",
        old="if manifest.committed_at_us > before_us:",
        new="if False:",
        tests=(
            (
                "tests/archive/test_compaction.py"
                "::test_replaced_objects_are_deleted_after_a_week_if_others_hold_their_rows"
            ),
        ),
    ),
    Guard(
        name="replaced-read-again",
        promise="Objects of a replaced range go only if their rows were just read elsewhere.",
        path="include/tidemark/maintenance/replaced.py",
        old="found = checksum_of_rows(self.store, file.key)\n        if found != file.checksum:",
        new="found = None\n        if False:",
        tests=(
            ("tests/archive/test_compaction.py::test_damage_in_a_compacted_object_keeps_the_objects_that_it_replaced"),
        ),
    ),
    Guard(
        name="unsealed-snapshot-kept",
        promise="No snapshot expires since the oldest publication that has no seal.",
        path="include/tidemark/maintenance/expiry.py",
        old="last = max([last, *(places[item.id] for item, _ in unsealed)])",
        new="last = max([last])",
        tests=("tests/batch/test_expiry.py::test_history_stays_from_the_oldest_unsealed_publication_on",),
    ),
    Guard(
        name="tagged-snapshot-kept",
        promise="A snapshot that somebody has tagged does not expire.",
        path="include/tidemark/maintenance/expiry.py",
        old="keep = set(state.tags.values())",
        new="keep: set[int] = set()",
        tests=("tests/batch/test_expiry.py::test_branches_and_tags_of_others_stay_with_their_own_snapshots",),
    ),
    Guard(
        name="compacted-days-by-calendar",
        promise="Compaction gives each row the day that the calendar does, in every span of the day.",
        path="include/tidemark/maintenance/compaction.py",
        old="for day in days for start, _ in day_spans(day, zone))",
        new="for day in days for start, _ in day_spans(day, zone)[:1])",
        tests=("tests/batch/test_calendar.py::test_compaction_gives_each_row_the_day_that_its_manifest_counted",),
    ),
)
