"""Guards of exactly-once delivery: one attempt writes, the marker moves with the records, nothing is skipped."""

from tests.guards.guard import Guard

_DISPLACED = "tests/speed/test_speed_stream.py::test_a_second_writer_displaces_the_first_which_leaves_it_the_heartbeat"
_AT_START = "tests/core/test_markers.py::test"
_MARKER_FITS = "tests/speed/test_marker.py::test_delivery_resumes_at_a_marker_in_the_range_and_refuses_any_other"
_EARLY = "tests/speed/test_rows_that_end_early.py::test_"

GUARDS = (
    Guard(
        name="copies-that-may-come",
        promise="With at_least_once, copies on the live topic alone raise no alarm.",
        path="include/tidemark/delivery_audit/report.py",
        old='({"duplicated"} if expected else set())',
        new="set()",
        tests=("tests/speed/test_delivery_report.py::test_copies_alone_are_a_note_where_delivery_may_repeat_records",),
    ),
    Guard(
        name="copies-side-by-side",
        promise="With at_least_once, as many copies as records on the live topic are a finding.",
        path="include/tidemark/delivery_audit/report.py",
        old='self.repeats and self.records("duplicated") < self.records("delivered")',
        new="self.repeats",
        tests=("tests/speed/test_delivery_report.py::test_as_many_copies_as_records_are_a_finding_in_any_delivery",),
    ),
    Guard(
        name="copies-that-must-not-come",
        promise="With exactly_once, a copy on the live topic is a finding.",
        path="include/tidemark/delivery_audit/report.py",
        old='({"duplicated"} if expected else set())',
        new='{"duplicated"}',
        tests=("tests/speed/test_delivery_report.py::test_only_a_completely_read_span_passes",),
    ),
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
        name="rows-complete",
        promise="A task that loses its connection to Java does not take that for the end of its rows.",
        path="include/tidemark/spark/task_input.py",
        old="    if not connection.peek(1):\n",
        new="    if False:\n",
        tests=("tests/spark/test_private_apis.py::test_a_task_knows_whether_its_rows_are_complete[True]",),
    ),
    *(
        Guard(
            name=f"{name}-rows-complete",
            promise=promise,
            path=f"include/tidemark/{path}",
            old="whole(batches)",
            new="batches",
            tests=(test,),
        )
        for name, path, promise, test in (
            (
                "exactly-once",
                "speed/exactly_once/batches.py",
                "No marker moves past records of a task that failed.",
                f"{_EARLY}an_exactly_once_stream_delivers_what_came_after_the_failure",
            ),
            (
                "replay",
                "speed/replay/replay.py",
                "No marker of a replay moves past dead letters of a task that failed.",
                f"{_EARLY}a_replay_delivers_what_came_after_the_failure",
            ),
            (
                "archive",
                "archive/write/sink.py",
                "No object has a part of the rows that its name says.",
                (
                    "tests/archive/test_write_range.py"
                    "::test_a_source_that_fails_in_the_middle_leaves_no_object_with_a_part_of_the_rows"
                ),
            ),
        )
    ),
    Guard(
        name="any-time-read",
        promise="A record's timestamp in nanoseconds stops no stream.",
        path="include/tidemark/spark/client_source.py",
        old="    except TimeRangeError as error:\n",
        new="    except ZeroDivisionError as error:\n",
        tests=("tests/test_hostile_records.py::test_every_record_is_delivered_or_dead_lettered[exactly_once]",),
    ),
    Guard(
        name="any-time-compared",
        promise="Kafka's timestamp in nanoseconds is the archive's latest one, and no sign of a rewritten log.",
        path="include/tidemark/kafka/positions.py",
        old="timestamp_us=timestamp_ms(message) * 1000,",
        new="timestamp_us=message.timestamp()[1] * 1000,",
        tests=(
            (
                "tests/batch/test_refill.py"
                "::test_a_timestamp_in_nanoseconds_is_refilled_as_the_latest_that_an_archive_holds"
            ),
        ),
    ),
    Guard(
        name="any-time-as-sparks",
        promise="A record before 1582 has the same time in the archive, whoever read it.",
        path="include/tidemark/kafka/times.py",
        old="    if time_ms >= _GREGORIAN_MS:\n",
        new="    if True:\n",
        tests=("tests/spark/test_client_source.py::test_both_readers_give_the_same_rows",),
    ),
    Guard(
        name="batch-of-known-partitions",
        promise="No batch is committed without the records of a partition that a broker does not know yet.",
        path="include/tidemark/speed/batches.py",
        old="        if len(found) < len(planned):\n",
        new="        if False:\n",
        tests=(
            ("tests/speed/test_at_least_once.py::test_a_partition_that_the_broker_does_not_know_yet_commits_no_batch"),
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
                    plain = self._producer if good else Producer({"bootstrap.servers": self._sink.kafka.servers})
                    plain.produce(topic, value, key, partition, on_report, None, timestamp, headers)
                    _ = good or plain.flush()""",
        tests=("tests/speed/test_transactions.py::test_a_failed_attempts_dead_letters_are_not_visible",),
    ),
    Guard(
        name="dead-letter-fits",
        promise="A dead letter that is too large for its topic goes there with its coordinates only.",
        path="include/tidemark/speed/output.py",
        old='.when(whole, F.col("source.value"))',
        new='.otherwise(F.col("source.value"))',
        tests=(
            "tests/speed/test_output.py::test_a_dead_letter_too_large_for_its_topic_has_its_coordinates_and_reason_only",
        ),
    ),
    Guard(
        name="refused-time-replaced",
        promise="A record whose timestamp the topic refuses is delivered with the time of its delivery.",
        path="include/tidemark/speed/exactly_once/row_records.py",
        old="np.where(too_early | too_late, 0, times)",
        new="times",
        tests=(
            "tests/speed/test_delivery_errors.py::test_a_record_whose_time_the_topic_refuses_gets_that_of_its_delivery",
        ),
    ),
    Guard(
        name="source-header",
        promise="Every record that is delivered exactly once names the source record it was made from.",
        path="include/tidemark/speed/headers.py",
        old='return batch.set_column(batch.schema.get_field_index("headers"), "headers", coordinates)',
        new="return batch",
        tests=("tests/speed/test_output.py::test_a_delivered_record_names_its_source_record",),
    ),
    Guard(
        name="speed-lease-polled",
        promise="A speed writer ends soon after another one of the stream has started.",
        path="include/tidemark/speed/stream.py",
        old="        check_lease()\n",
        new="",
        tests=(f"{_DISPLACED}[at_least_once-while idle]",),
    ),
    Guard(
        name="speed-lease-after-failure",
        promise="A speed writer that fails because of another one says so, and is not restarted.",
        path="include/tidemark/speed/stream.py",
        old="check_lease(now=True)  # another writer is a usual cause",
        new="",
        tests=(f"{_DISPLACED}[at_least_once-after a failure]",),
    ),
    Guard(
        name="heartbeat-of-the-displaced",
        promise="A displaced writer does not report the stream as failed while the other one runs.",
        path="include/tidemark/spark/monitor.py",
        old="elif not isinstance(error, DisplacedError):",
        new="else:",
        tests=(f"{_DISPLACED}[at_least_once-while idle]",),
    ),
    Guard(
        name="exit-code-of-the-displaced",
        promise="A displaced writer ends with an exit code of its own, after which a supervisor leaves it.",
        path="include/tidemark/spark/app.py",
        old="sys.exit(error.exit_code)",
        new="sys.exit(1)",
        tests=("tests/speed/test_speed_stream.py::test_an_error_ends_the_application_with_one_line_and_its_exit_code",),
    ),
    Guard(
        name="displaced-not-restarted",
        promise="Two supervised writers do not displace each other for ever.",
        path="include/tidemark/demo/supervise.py",
        old="if managed.returncode == DisplacedError.exit_code:",
        new="if False:",
        tests=("tests/test_demo_supervisor.py::test_a_stream_that_another_writer_displaced_is_not_restarted",),
    ),
    Guard(
        name="markers-move-forwards-only",
        promise="A change to exactly-once delivery moves no marker backwards.",
        path="include/tidemark/core/markers.py",
        old="if marker < position:",
        new="if True:",
        tests=(f"{_AT_START}_after_at_least_once_delivery_markers_move_forwards_only",),
    ),
    Guard(
        name="marker-after-old-checkpoint",
        promise="A checkpoint from an earlier time of at-least-once delivery is refused.",
        path="include/tidemark/core/markers.py",
        old="elif marker > checkpoint.end.get(partition, 0):",
        new="elif False:",
        tests=(f"{_AT_START}_after_at_least_once_delivery_markers_move_forwards_only",),
    ),
    Guard(
        name="marker-expired",
        promise="A log whose marker expired is not delivered a second time.",
        path="include/tidemark/core/markers.py",
        old="        if expired:\n",
        new="        if False:\n",
        tests=(f"{_AT_START}_without_a_checkpoint_each_log_with_records_needs_a_marker_or_none_has_one",),
    ),
    Guard(
        name="contradiction-stops-the-start",
        promise="A stream does not start with markers that contradict its checkpoint.",
        path="include/tidemark/speed/exactly_once/start.py",
        old="        if decided.after:\n",
        new="        if False:\n",
        tests=("tests/speed/test_restored.py::test_a_checkpoint_restored_from_either_delivery_mode_repeats_no_record",),
    ),
    Guard(
        name="deployments-apart",
        promise="Two deployments on one cluster use different transactional ids and markers.",
        path="include/tidemark/settings.py",
        old='return f"tidemark-{self.deployment}"',
        new='return "tidemark"',
        tests=(
            "tests/test_settings.py::test_a_deployment_is_named_by_its_setting_or_by_bucket_and_prefix",
            "tests/speed/test_deployments.py::test_dev_and_prod_on_one_cluster_are_two_and_a_renamed_one_stops",
        ),
    ),
    Guard(
        name="marker-set-in-its-log",
        promise="A person cannot set a marker after the end of its log.",
        path="include/tidemark/speed/manual_markers.py",
        old="if found is None or not 0 <= position <= found.high_watermark:",
        new="if found is None:",
        tests=(
            (
                "tests/speed/test_restored.py::"
                "test_a_partition_whose_marker_expired_stops_the_start_until_it_is_set_again[kept]"
            ),
        ),
    ),
    Guard(
        name="speed-topic-polled",
        promise="A speed stream without batches notices that its topic was recreated.",
        path="include/tidemark/speed/stream.py",
        old="        watch.poll()\n",
        new="",
        tests=("tests/spark/test_same_topic.py::test_a_speed_stream_without_batches_stops",),
    ),
    Guard(
        name="marker-copied-forwards",
        promise="Markers that are copied from another deployment again move none back.",
        path="include/tidemark/cli/markers.py",
        old="_require_forwards(copied, markers, other)",
        new="pass",
        tests=("tests/speed/test_deployments.py::test_dev_and_prod_on_one_cluster_are_two_and_a_renamed_one_stops",),
    ),
)
