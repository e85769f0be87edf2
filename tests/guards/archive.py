"""Guards of the write path to the archive: one object per key, one manifest per batch, one writer at a time."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="conditional-put",
        promise="A small object is written only where its key is free.",
        path="include/tidemark/s3.py",
        old='ContentType=content_type, IfNoneMatch="*", **options',
        new="ContentType=content_type, **options",
        tests=("tests/archive/test_upload.py::test_a_taken_key_is_left_alone_and_no_upload_stays_behind",),
    ),
    Guard(
        name="conditional-complete",
        promise="An object uploaded in parts appears only where its key is free.",
        path="include/tidemark/objects/upload.py",
        old='MultipartUpload={"Parts": self._parts},\n                    IfNoneMatch="*",',
        new='MultipartUpload={"Parts": self._parts},',
        tests=("tests/archive/test_upload.py::test_a_taken_key_is_left_alone_and_no_upload_stays_behind",),
    ),
    Guard(
        name="conditional-replace",
        promise="An object is replaced only while it is what the writer has read.",
        path="include/tidemark/s3.py",
        old='if found["Body"].read() != expected:',
        new="if False:",
        tests=("tests/archive/test_fencing.py::test_an_object_is_replaced_only_where_it_is_what_was_expected",),
    ),
    Guard(
        name="taken-key-compared",
        promise="An object that has a batch's key is reused only if it holds the same rows.",
        path="include/tidemark/archive/write/file.py",
        old="size = self._same_object(footer).bytes",
        new="pass",
        tests=("tests/archive/test_sink.py::test_other_content_under_the_same_key_is_a_conflict_that_names_both",),
    ),
    Guard(
        name="reused-rows-read",
        promise="An earlier attempt's object is reused only if its rows have the checksum in its footer.",
        path="include/tidemark/archive/write/file.py",
        old="if found != ours.checksum:",
        new="if False:",
        tests=(
            (
                "tests/archive/test_s3_faults.py"
                "::test_an_earlier_attempts_object_is_believed_only_while_its_rows_are_what_its_footer_says"
            ),
        ),
    ),
    Guard(
        name="failed-upload-aborted",
        promise="An upload that failed leaves no parts at the server.",
        path="include/tidemark/objects/upload.py",
        old="self._store.client.abort_multipart_upload(Bucket=self._store.bucket, Key=self.key, UploadId=upload_id)",
        new="pass",
        tests=("tests/archive/test_upload.py::test_a_refused_call_is_named_and_nothing_stays_behind",),
    ),
    Guard(
        name="rows-in-range",
        promise="A batch writes no row outside the range that it commits.",
        path="include/tidemark/archive/write/task.py",
        old="if known is None or first not in known[1] or last not in known[1]:",
        new="if False:",
        tests=(
            "tests/archive/test_sink.py::test_rows_that_do_not_fit_the_range_are_refused_and_nothing_becomes_visible",
        ),
    ),
    Guard(
        name="manifest-once",
        promise="Of two writers that commit one batch at the same time, the first manifest stays.",
        path="include/tidemark/archive/manifests.py",
        old="if store.put_if_absent(layout.manifest_key(writer, batch), manifest.to_json()):",
        new="if store.put(layout.manifest_key(writer, batch), manifest.to_json()) is None:",
        tests=("tests/archive/test_commit.py::test_a_batch_committed_by_another_writer_in_between_keeps_its_manifest",),
    ),
    Guard(
        name="manifest-ranges",
        promise="A batch that is committed with other ranges is a conflict.",
        path="include/tidemark/archive/manifests.py",
        old="if committed != dict(ranges) and not (",
        new="if False and not (",
        tests=("tests/archive/test_commit.py::test_the_first_manifest_of_a_batch_stays_whatever_a_repeat_says",),
    ),
    Guard(
        name="manifest-chain",
        promise="Each manifest names the digest of its writer's manifest before it.",
        path="include/tidemark/archive/manifests.py",
        old="previous=_previous(store, layout, writer, batch),",
        new="previous=None,",
        tests=("tests/archive/test_commit.py::test_manifests_of_a_writer_chain_by_the_digest_of_the_one_before",),
    ),
    Guard(
        name="broken-chain-found",
        promise="A manifest that was altered or deleted shows in the chain.",
        path="include/tidemark/core/manifest_chain.py",
        old="if manifest.previous != expected:",
        new="if False:",
        tests=("tests/core/test_chain.py::test_an_altered_manifest_breaks_the_link_of_the_one_behind_it",),
    ),
    Guard(
        name="write-ahead-log-compared",
        promise="A batch is archived only if the write-ahead log has the range that its query reads.",
        path="include/tidemark/archive/stream/micro_batches.py",
        old="self._require_own(planned, ranges_read(frame), batch)",
        new="ranges_read(frame)",
        tests=(
            (
                "tests/archive/test_fencing.py"
                "::test_a_write_ahead_log_that_another_writer_overwrote_is_noticed_before_anything_is_read"
            ),
        ),
    ),
    Guard(
        name="lease-taken",
        promise="A writer holds the lease only if the object there is its own.",
        path="include/tidemark/archive/stream/lease.py",
        old="if store.get(key) == body:",
        new="if True:",
        tests=("tests/archive/test_fencing.py::test_a_lease_that_another_writer_takes_in_between_is_taken_from_it",),
    ),
    Guard(
        name="lease-lost",
        promise="A writer notices that another one has taken its checkpoint.",
        path="include/tidemark/archive/stream/lease.py",
        old="if found == self.body:\n            return",
        new="return",
        tests=("tests/archive/test_fencing.py::test_a_lease_belongs_to_the_last_who_took_it",),
    ),
    Guard(
        name="lease-before-manifest",
        promise="A zombie that lost its lease while it uploaded writes no manifest.",
        path="include/tidemark/archive/stream/micro_batches.py",
        old="self._lease.check()\n            manifest = commit_batch(",
        new="manifest = commit_batch(",
        tests=(
            (
                "tests/archive/test_fencing.py"
                "::test_a_writer_that_another_one_replaces_in_the_middle_of_a_batch_stops_and_the_batch_is_archived_once"
            ),
        ),
    ),
    Guard(
        name="retention-alarm",
        promise="There is an alarm before Kafka deletes a record that is not archived.",
        path="include/tidemark/archive/retention.py",
        old="item.hours_left is not None and item.hours_left < self.alarm_hours",
        new="False",
        tests=("tests/archive/test_retention.py::test_the_first_record_that_is_not_archived_tells_the_hours_left",),
    ),
)
