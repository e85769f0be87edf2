"""Guards of exactly-once delivery: one attempt writes, the marker moves with the records, nothing is skipped."""

from tests.guards.guard import Guard

_MARKER_FITS = "tests/speed/test_marker.py::test_delivery_resumes_at_a_marker_in_the_range_and_refuses_any_other"

GUARDS = (
    Guard(
        name="dead-server-named",
        promise="A server of the local stack that dies while another process starts is named at once.",
        path="include/tidemark/stack/processes.py",
        old="            if death := self.owner.essential_death():\n                raise death\n",
        new="",
        tests=("tests/test_processes.py::test_the_wait_for_a_process_ends_at_once_when_an_essential_one_has_died",),
    ),
    Guard(
        name="transform-error",
        promise="An error of a stream's transformation is not blamed on a service.",
        path="include/tidemark/spark/failures.py",
        old="if code is not None and fails_on_a_row(error):",
        new="if False:",
        tests=("tests/spark/test_failures.py::test_an_error_of_a_row_names_the_line_of_the_transformation",),
    ),
    Guard(
        name="not-the-transformation",
        promise="An error of the machine, of a file or of the platform is not blamed on the transformation.",
        path="include/tidemark/spark/failures.py",
        old="return bool(_OF_ROWS.search(text)) and not _OF_MACHINE.match(cause_line(text))",
        new="return bool(_OF_ROWS.search(text))",
        tests=("tests/spark/test_failures.py::test_other_errors_are_not_blamed_on_the_transformation",),
    ),
    Guard(
        name="failing-record-tried",
        promise="No record is named as the one that fails unless it fails by itself.",
        path="include/tidemark/core/first_failing.py",
        old="return found if len(found.range) > 1 or fails(found) else None",
        new="return found",
        tests=(
            (
                "tests/core/test_first_failing.py"
                "::test_nothing_is_named_where_no_range_fails_or_the_record_fails_only_sometimes"
            ),
        ),
    ),
    Guard(
        name="init-before-marker",
        promise="Earlier attempts are fenced before the marker is read, so none can move it after.",
        path="include/tidemark/speed/exactly_once/transactions.py",
        old='self._bounded("init_transactions")  # before the marker is read: '
        "after this, no earlier attempt can move it\n"
        "        found = read_marker(self._consumer, sink, span.log)",
        new='found = read_marker(self._consumer, sink, span.log)\n        self._bounded("init_transactions")',
        tests=("tests/speed/test_transactions.py::test_an_earlier_attempt_cannot_commit_after_the_marker_is_read",),
    ),
    Guard(
        name="marker-error",
        promise="A marker that Kafka could not read is an error, not a log without a marker.",
        path="include/tidemark/speed/exactly_once/marker.py",
        old="if item.error is not None:",
        new="if False:",
        tests=("tests/speed/test_marker.py::test_an_error_beside_a_marker_does_not_count_as_a_missing_marker",),
    ),
    Guard(
        name="marker-before-batch",
        promise="A marker before the batch stops delivery: records between them were never delivered.",
        path="include/tidemark/speed/exactly_once/marker.py",
        old="if found.position < span.start:",
        new="if False:",
        tests=(_MARKER_FITS,),
    ),
    Guard(
        name="marker-after-batch",
        promise="A marker after the batch stops delivery: more was delivered than the checkpoint says.",
        path="include/tidemark/speed/exactly_once/marker.py",
        old="if found.position > span.until:",
        new="if False:",
        tests=(_MARKER_FITS,),
    ),
    Guard(
        name="marker-missing",
        promise="A marker that is missing after the first batch stops delivery.",
        path="include/tidemark/speed/exactly_once/marker.py",
        old="if span.first:",
        new="if True:",
        tests=("tests/speed/test_marker.py::test_without_a_marker_only_the_first_batch_may_start",),
    ),
    Guard(
        name="marker-of-this-log",
        promise="The marker of a topic that was recreated counts for nothing.",
        path="include/tidemark/speed/exactly_once/marker.py",
        old="if topic_id != log.topic_id:",
        new="if False:",
        tests=("tests/speed/test_delivery_errors.py::test_a_marker_that_is_not_ours_stops_delivery",),
    ),
    Guard(
        name="delivered-rows-skipped",
        promise="Rows below the marker are not delivered a second time.",
        path="include/tidemark/speed/exactly_once/transactions.py",
        old="self._write(self._undelivered(batch, resumed))",
        new="self._write(batch)",
        tests=(
            ("tests/speed/test_transactions.py::test_a_long_range_is_several_transactions_and_the_next_one_continues"),
        ),
    ),
    Guard(
        name="fencing",
        promise="An attempt that wakes up late can write nothing.",
        path="include/tidemark/speed/exactly_once/transactions.py",
        old='"transactional.id": sink.transactional_id(span.log),',
        new='"transactional.id": f"{sink.transactional_id(span.log)}-{id(self)}",',
        tests=("tests/speed/test_transactions.py::test_a_fenced_attempt_says_who_continues",),
    ),
    Guard(
        name="marker-in-transaction",
        promise="The marker moves in the transaction that holds the records.",
        path="include/tidemark/speed/exactly_once/transactions.py",
        old='self._bounded("send_offsets_to_transaction", [offset], group)',
        new="self._consumer.commit(offsets=[offset], asynchronous=False)",
        tests=("tests/speed/test_transactions.py::test_a_commit_that_fails_moves_no_marker",),
    ),
    Guard(
        name="dead-letter-in-transaction",
        promise="A dead letter of an attempt that failed is not seen.",
        path="include/tidemark/speed/exactly_once/transactions.py",
        old="self._producer.produce(topic, value, key, partition, on_report, None, timestamp, headers)",
        new="""good = rows.column("_good")[row].as_py()
                    plain = self._producer if good else Producer({"bootstrap.servers": self._sink.bootstrap})
                    plain.produce(topic, value, key, partition, on_report, None, timestamp, headers)
                    _ = good or plain.flush()""",
        tests=("tests/speed/test_transactions.py::test_a_failed_attempts_dead_letters_are_not_visible",),
    ),
    Guard(
        name="source-header",
        promise="Every record that is delivered exactly once names the source record it was made from.",
        path="include/tidemark/speed/headers.py",
        old='return batch.set_column(batch.schema.get_field_index("headers"), "headers", coordinates)',
        new="return batch",
        tests=("tests/speed/test_output.py::test_a_delivered_record_names_its_source_record",),
    ),
)
