"""Guards against logs that were truncated and grew again: nothing continues over records that are no longer Kafka's."""

from tests.guards.guard import Guard

_CORE = "include/tidemark/core/logged_record.py"
_CHECK = "include/tidemark/archive/stream/log_check.py"
_TESTS = "tests/archive/test_rewritten.py"
_ELECTION = "tests/archive/test_unclean_election.py::test_logs_that_an_unclean_election_truncated_stop_stream_and_run"
_SAME = "tests/core/test_logged_record.py::test_a_record_is_the_same_rewritten_or_cannot_be_compared"

GUARDS = (
    Guard(
        name="rewritten-record-compared",
        promise="Another record at an archived offset is noticed by its timestamp, key and value.",
        path=_CORE,
        old="return archived.is_same(kafka.record)",
        new="return True",
        tests=(_SAME,),
    ),
    Guard(
        name="rewritten-record-missing",
        promise="A log that ends before an archived record was truncated, unless retention or compaction explain it.",
        path=_CORE,
        old="or (kafka.compacted and archived.offset < kafka.end):",
        new="or True:",
        tests=(_SAME,),
    ),
    Guard(
        name="rewritten-digest-framed",
        promise="Records differ if a byte moved between key and value, or if one of them is null and not empty.",
        path=_CORE,
        old='found.update(b"null;" if part is None else b"%d;" % len(part))',
        new="pass",
        tests=("tests/core/test_logged_record.py::test_null_and_empty_and_moved_bytes_have_different_digests",),
    ),
    Guard(
        name="rewritten-bisected",
        promise="The rewritten range starts at its first offset, also if older records expired.",
        path=_CORE,
        old="known, low = (at if answer else known), middle",
        new="known, low = known, middle",
        tests=("tests/core/test_logged_record.py::test_retention_below_the_rewritten_offsets_does_not_hide_them",),
    ),
    Guard(
        name="rewritten-at-start",
        promise="A stream starts only over the records that it archived.",
        path=_CHECK,
        old="self._require_same(self._last.values(), ends)",
        new="pass",
        tests=(f"{_TESTS}::test_a_stream_with_a_checkpoint_compares_its_own_last_record",),
    ),
    Guard(
        name="rewritten-new-leader",
        promise="A batch compares every log that has another leader.",
        path=_CHECK,
        old=" or end.leader_epoch is None or end.leader_epoch != self._epochs[log]",
        new="",
        tests=(f"{_TESTS}::test_only_a_batch_with_another_leader_reads_records_to_compare",),
    ),
    Guard(
        name="rewritten-before-batch",
        promise="A batch after a truncation is not committed.",
        path=_CHECK,
        old="self._require_same([item for log, item in self._last.items() if log in changed], ends)",
        new="pass",
        tests=(f"{_TESTS}::test_another_record_before_the_batch_stops_it_before_its_manifest",),
    ),
    Guard(
        name="rewritten-during-read",
        promise="A batch that was read during a truncation is not committed.",
        path=_CHECK,
        old="self._require_read([item for item in written.last if item.log in changed], ends, ranges, written)",
        new="pass",
        tests=(f"{_TESTS}::test_a_log_truncated_during_the_read_stops_the_batch_and_names_its_objects",),
    ),
    Guard(
        name="rewritten-quiet-log",
        promise="A log without new records keeps its last record in later manifests.",
        path=_CHECK,
        old="return tuple((self._last | own).values())",
        new="return tuple(own.values())",
        tests=(f"{_TESTS}::test_a_quiet_log_keeps_its_last_record_in_later_manifests",),
    ),
    Guard(
        name="rewritten-last-row",
        promise="A manifest names the last record of each log, not the first.",
        path="include/tidemark/archive/write/last_records.py",
        old="last = {partitions[0].as_py(): batch.num_rows - 1}",
        new="last = {partitions[0].as_py(): 0}",
        tests=(f"{_TESTS}::test_the_last_row_of_each_log_is_kept_over_batches",),
    ),
    Guard(
        name="rewritten-import-left-out",
        promise="Imported records are not compared with Kafka's, whose bytes may differ.",
        path="include/tidemark/archive/write/last_records.py",
        old='if row.column("timestamp_type")[0].as_py() != NO_TIMESTAMP_TYPE',
        new="if True",
        tests=(f"{_TESTS}::test_records_that_retention_removed_or_an_import_wrote_are_not_compared",),
    ),
    Guard(
        name="rewritten-start-checked",
        promise="The archive stream checks its logs before it takes the lease and reads.",
        path="include/tidemark/archive/stream/driver.py",
        old="log_check.start(before, logs)",
        new="pass",
        tests=(_ELECTION,),
    ),
    Guard(
        name="rewritten-batch-checked",
        promise="The archive stream checks its logs before each manifest.",
        path="include/tidemark/archive/stream/micro_batches.py",
        old="last = self._log_check.before_commit(held, written)",
        new="last = written.last",
        tests=(_ELECTION,),
    ),
    Guard(
        name="rewritten-run-checked",
        promise="A reconcile run plans nothing over a log that was truncated and grew again.",
        path="include/tidemark/reconcile/plan/step.py",
        old="require_same_records(run, planner.history)",
        new="pass",
        tests=(_ELECTION,),
    ),
    Guard(
        name="rewritten-after-compaction",
        promise="A compaction keeps the last record of what it replaces.",
        path="include/tidemark/maintenance/compaction.py",
        old="last=() if (last := group.inputs[-1].last) is None else (last,),",
        new="last=(),",
        tests=("tests/archive/test_compaction.py::test_small_files_become_one_per_folder_with_every_row_in_order",),
    ),
    Guard(
        name="rewritten-verified",
        promise="Verification compares offset and timestamp of each row with Kafka's record.",
        path="include/tidemark/verify/kafka_records.py",
        old="other.add(differing)",
        new="pass",
        tests=("tests/batch/test_verify.py::test_another_timestamp_in_kafka_at_an_archived_offset_is_a_difference",),
    ),
    Guard(
        name="rewritten-source-settings",
        promise="Settings by which the source topic loses records are findings.",
        path="include/tidemark/speed/topics.py",
        old="*_of_source(stream, settings.kafka_bootstrap)",
        new="*()",
        tests=("tests/speed/test_topics.py::test_a_source_topic_that_can_lose_records_is_a_finding",),
    ),
)
