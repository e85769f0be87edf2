"""Guards of ledger, compaction and deletion: what is compacted stays true, and nothing that is needed goes."""

from tests.guards.guard import Guard

_LEDGER_DAMAGE = "tests/archive/test_ledger.py::test_a_damaged_ledger_is_reported_and_can_be_rebuilt_from_the_manifests"

_DELETABLE = "tests/core/test_maintenance_ages.py::test_only_an_old_object_of_the_replaced_version_may_be_deleted"

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
                "tests/archive/test_replaced.py"
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
            ("tests/archive/test_replaced.py::test_damage_in_a_compacted_object_keeps_the_objects_that_it_replaced"),
        ),
    ),
    Guard(
        name="deleted-when-old",
        promise="An object that a batch has just written is not deleted, even if its key was replaced before.",
        path="include/tidemark/core/maintenance_ages.py",
        old="if modified >= written_before:",
        new="if False:",
        tests=(_DELETABLE,),
    ),
    Guard(
        name="deleted-as-replaced",
        promise="An object is deleted only as the version that was replaced.",
        path="include/tidemark/core/maintenance_ages.py",
        old='return "replaced" if etag == replaced_etag else "rewritten"',
        new='return "replaced"',
        tests=(_DELETABLE,),
    ),
    Guard(
        name="deleted-after-a-second-look",
        promise="An object that was written since the listing is not deleted.",
        path="include/tidemark/maintenance/replaced.py",
        old='if now is None or _state(now, listed.etag, written_before) != "replaced":',
        new="if False:",
        tests=("tests/archive/test_replaced.py::test_an_object_replaced_during_the_deletion_is_compared_once_more",),
    ),
    Guard(
        name="conditional-delete",
        promise="S3 deletes a replaced object only if it still has the ETag that was compared.",
        path="include/tidemark/s3.py",
        old="Key=key, IfMatch=f'\"{etag}\"')",
        new="Key=key)",
        tests=("tests/archive/test_replaced.py::test_a_delete_is_conditional_on_the_version",),
    ),
    Guard(
        name="manifest-read-once",
        promise="A compaction reads a manifest once for all its logs.",
        path="include/tidemark/maintenance/compaction.py",
        old="places.setdefault((item.writer, item.batch), [])",
        new="places.setdefault((item.writer, place), [])",
        tests=("tests/archive/test_grouping.py::test_a_manifest_is_read_once_for_all_its_logs",),
    ),
    Guard(
        name="compaction-tries",
        promise="A compaction that others overtake again and again ends.",
        path="include/tidemark/maintenance/compaction.py",
        old="for _ in range(TRIES):",
        new="while True:",
        tests=(
            "tests/archive/test_compaction.py::test_a_compaction_that_never_commits_first_ends_with_an_explained_error",
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
        path="include/tidemark/objects/days.py",
        old="for day in days for start, _ in day_spans(day, zone))",
        new="for day in days for start, _ in day_spans(day, zone)[:1])",
        tests=("tests/batch/test_calendar.py::test_compaction_gives_each_row_the_day_that_its_manifest_counted",),
    ),
)
