"""Guards of a plan: every offset once, every missing one named for what it is, no day proven too early."""

from tests.guards.guard import Guard

_BOTH = "tests/batch/test_both_tables.py"
_CLOCKS = "test_a_stream_or_run_does_not_start_where_java_has_other_clocks"
_HALF = "tests/batch/test_half_published.py::test_half_of_a_days_next_version_is_no_proof_and_the_next_run_rebuilds_it"

GUARDS = (
    Guard(
        name="unproven-planned",
        promise="A run rebuilds a day that an earlier run has published and not sealed, whatever its own days are.",
        path="include/tidemark/core/planner.py",
        old=" | set(unproven)\n",
        new="\n",
        tests=("tests/core/test_planner.py::test_a_run_rebuilds_each_unproven_day_whatever_its_own_days_are",),
    ),
    Guard(
        name="unproven-read",
        promise="A plan from the ledger reads the objects of a day that was published and not sealed.",
        path="include/tidemark/archive/ledger/history.py",
        old=" | set(unproven)\n",
        new="\n",
        tests=("tests/archive/test_history.py::test_a_plan_from_segments_is_the_plan_from_manifests",),
    ),
    Guard(
        name="unproven-found",
        promise="Every day that readers see without a seal of it is found before a run is planned.",
        path="include/tidemark/reconcile/plan/step.py",
        old="seals, force, scheduled, _unproven(run, seals))",
        new="seals, force, scheduled, ())",
        tests=(
            (
                "tests/batch/test_superseded.py"
                "::test_the_next_run_seals_a_day_that_a_dead_run_published_whatever_its_own_days_are"
            ),
        ),
    ),
    Guard(
        name="half-publication-found",
        promise="A quarantine beside an earlier publication's rows is half a publication.",
        path="include/tidemark/tables/day_publications.py",
        old="return quarantine is not None and (table.run, table.inputs) != (quarantine.run, quarantine.inputs)",
        new="return False",
        tests=(f"{_BOTH}::test_a_quarantine_beside_an_earlier_publication_is_half_and_no_seal_names_it",),
    ),
    Guard(
        name="first-half-publication-found",
        promise="A quarantine of a day that the table never had is half a publication.",
        path="include/tidemark/tables/day_publications.py",
        old="return self.table_whole",
        new="return False",
        tests=(f"{_BOTH}::test_the_first_publication_ever_may_be_half",),
    ),
    Guard(
        name="half-publication-planned",
        promise="A run rebuilds a day of which another run has published the quarantine and not the table.",
        path="include/tidemark/tables/seals.py",
        old="if item.is_half or item.published is None or (day,",
        new="if item.published is None or (day,",
        tests=(_HALF,),
    ),
    Guard(
        name="half-publication-shown",
        promise="Status shows a day of which a run has published the quarantine and not the table as not proven.",
        path="include/tidemark/current_view/day_states.py",
        old="shown = day_publications(stored.history, stored.quarantine)",
        new="shown = day_publications(stored.history, MainHistory())",
        tests=(_HALF,),
    ),
    Guard(
        name="half-publication-on-page",
        promise="The page of a sealed day says so while readers see what no seal proves.",
        path="include/tidemark/pages/days.py",
        old="    if seen is None:\n        return verdict",
        new="    if True:\n        return verdict",
        tests=(f"{_BOTH}::test_the_page_of_a_sealed_day_does_not_call_half_a_publication_complete",),
    ),
    Guard(
        name="unproven-shown",
        promise="A day that readers see without a proof is listed, and the exit code is 1.",
        path="include/tidemark/current_view/day_states.py",
        old='        if day in unproven:\n            return "unproven"\n',
        new="",
        tests=(
            (
                "tests/batch/test_superseded.py"
                "::test_the_next_run_seals_a_day_that_a_dead_run_published_whatever_its_own_days_are"
            ),
        ),
    ),
    Guard(
        name="cover-trimmed",
        promise="Where two ranges overlap, the later one is trimmed, so no offset is read twice.",
        path="include/tidemark/core/cover.py",
        old="start, trims = before.end, before.trims",
        new="start, trims = item.start, before.trims",
        tests=("tests/core/test_cover.py::test_an_overlap_trims_the_later_range_at_the_end_of_the_earlier_one",),
    ),
    Guard(
        name="complete-copy-first",
        promise="No row of a complete copy is passed over for a copy with holes.",
        path="include/tidemark/core/cover.py",
        old="complete = [index for index, copy in enumerate(copies) if copy.is_complete]",
        new="complete = list(range(len(copies)))",
        tests=(
            "tests/core/test_cover_copies.py::test_a_complete_copy_is_taken_although_one_with_a_hole_reaches_farther",
        ),
    ),
    Guard(
        name="gap-lost",
        promise="Offsets that retention has taken are lost, and never planned as a refill.",
        path="include/tidemark/core/planner.py",
        old='if missing.end <= log_start:\n        return (Gap(range=missing, kind="lost"),)',
        new='if missing.end <= log_start:\n        return (Gap(range=missing, kind="refill"),)',
        tests=(
            (
                "tests/core/test_planner_properties.py"
                "::test_used_ranges_and_gaps_tile_the_target_and_gaps_split_at_the_log_start"
            ),
        ),
    ),
    Guard(
        name="gap-refillable",
        promise="Missing offsets that Kafka still holds are refilled, not given up.",
        path="include/tidemark/core/planner.py",
        old='if missing.start >= log_start:\n        return (Gap(range=missing, kind="refill"),)',
        new='if missing.start >= log_start:\n        return (Gap(range=missing, kind="lost"),)',
        tests=(
            (
                "tests/core/test_planner_properties.py"
                "::test_used_ranges_and_gaps_tile_the_target_and_gaps_split_at_the_log_start"
            ),
        ),
    ),
    Guard(
        name="gap-pending",
        promise="What is not archived after the target is shown as pending.",
        path="include/tidemark/core/planner.py",
        old="pending=range_or_none(target.end, max(target.end, target.high_watermark)),",
        new="pending=None,",
        tests=("tests/core/test_planner.py::test_offsets_after_the_target_that_are_not_archived_are_pending",),
    ),
    Guard(
        name="silence-unexplained",
        promise="An offset without a record is unexplained unless the log has transactions or is compacted.",
        path="include/tidemark/kafka/offset_evidence.py",
        old='return GapCause(cause="transactional" if proven and policy is not None else None, from_offset=start)',
        new='return GapCause(cause="transactional", from_offset=start)',
        tests=("tests/batch/test_holes.py::test_a_log_without_transactions_explains_no_silence",),
    ),
    Guard(
        name="readable-refilled",
        promise="An offset at which Kafka gives a committed record is never explained as a hole.",
        path="include/tidemark/kafka/offset_evidence.py",
        old="readable=_sample(asked[visible & ~aborted]),",
        new="readable=OffsetSample(),",
        tests=("tests/batch/test_holes.py::test_a_record_that_kafka_still_gives_is_never_explained",),
    ),
    Guard(
        name="no-gap-finalized",
        promise="No plan with a gap that Kafka can fill is finalized.",
        path="include/tidemark/reconcile/plan/step.py",
        old='unfilled = [f"{gap} not refilled" for gap in _unfilled(plan)]',
        new="unfilled: list[str] = []",
        tests=(
            "tests/batch/test_plan.py::test_finalizing_a_plan_with_gaps_is_refused_with_every_range_and_keeps_the_plan",
        ),
    ),
    Guard(
        name="loss-accepted",
        promise="A loss stops the run until the stream accepts it.",
        path="include/tidemark/reconcile/plan/step.py",
        old="losses = [] if run.stream.batch.accept_loss else _lost(run, plan, seals)",
        new="losses: list[str] = []",
        tests=(
            "tests/batch/test_plan.py::test_what_retention_took_is_lost_and_final_only_where_the_stream_accepts_it",
        ),
    ),
    Guard(
        name="fast-clock-ends-no-day",
        promise="A record of a producer whose clock is fast ends no day before records that Kafka holds of it.",
        path="include/tidemark/reconcile/plan/targets.py",
        old="return replace(found, position=int(own[-1]) + 1) if len(own) else found",
        new="return found",
        tests=("tests/batch/test_day_end.py::test_a_record_of_a_fast_clock_ends_no_day",),
    ),
    Guard(
        name="deleted-tail-lost",
        promise="What was seen of a topic that is deleted and not archived is lost, not forgotten.",
        path="include/tidemark/core/targets.py",
        old="end = max(end for _, end in (*extents, in_kafka.get(log, (0, 0))))",
        new="end = max(end for _, end in extents)",
        tests=(
            ("tests/core/test_targets.py::test_a_deleted_topic_is_lost_from_its_archived_end_to_the_last_one_seen"),
        ),
    ),
    Guard(
        name="seen-offsets-recorded",
        promise="What a run sees of a log is kept for the time when its topic is deleted.",
        path="include/tidemark/reconcile/plan/log_extents.py",
        old="extents=widen(known.extents, before.extents, now)",
        new="extents=widen(known.extents, before.extents)",
        tests=(
            "tests/batch/test_losses.py::test_the_tail_of_a_recreated_topic_is_a_loss_in_plan_seal_report_and_proof",
        ),
    ),
    Guard(
        name="lost-end-found",
        promise="An end that was seen of a log that Kafka has, and that is after its end now, is a loss.",
        path="include/tidemark/core/log_extents.py",
        old="found += [LogRange(log=item.log, range=part) for part in subtract(lost, known)]",
        new="found += []",
        tests=(
            "tests/core/test_targets.py::test_what_was_seen_of_a_log_at_or_after_its_end_is_lost_unless_it_is_archived_or_known",
        ),
    ),
    Guard(
        name="lost-end-seen-before",
        promise="Only an end that was seen before Kafka was asked for the end of a log can be a loss.",
        path="include/tidemark/reconcile/plan/targets.py",
        old="seen = record_seen(run, before, ends,",
        new="seen = record_seen(run, read_seen(run), ends,",
        tests=("tests/batch/test_losses.py::test_an_end_that_the_stream_sees_while_the_run_asks_kafka_is_no_loss",),
    ),
    Guard(
        name="lost-end-recorded",
        promise="What a log lost from its end is not forgotten when the log has grown again.",
        path="include/tidemark/reconcile/plan/log_extents.py",
        old="sorted({*known.truncated, *lost} - back,",
        new="sorted({*known.truncated} - back,",
        tests=(
            "tests/batch/test_losses.py::test_a_lost_end_of_a_log_is_named_until_it_is_accepted_and_then_stays_known",
        ),
    ),
    Guard(
        name="lost-end-named",
        promise="What a log lost from its end stops the run until a person accepts it.",
        path="include/tidemark/reconcile/plan/step.py",
        old="return [*found, *map(truncation_text, new_truncations(plan, seals))]",
        new="return found",
        tests=(
            "tests/batch/test_losses.py::test_a_lost_end_of_a_log_is_named_until_it_is_accepted_and_then_stays_known",
        ),
    ),
    Guard(
        name="lost-end-sealed",
        promise="A seal records what logs have lost from their ends.",
        path="include/tidemark/reconcile/seal.py",
        old="truncated=tuple(lost for item in plan.logs for lost in item.target.truncated),",
        new="truncated=(),",
        tests=(
            "tests/batch/test_losses.py::test_a_lost_end_of_a_log_is_named_until_it_is_accepted_and_then_stays_known",
        ),
    ),
    Guard(
        name="lost-end-known",
        promise="A lost end that a seal records stops no later run.",
        path="include/tidemark/reconcile/plan/losses.py",
        old="for lost in item.target.truncated if lost not in sealed)",
        new="for lost in item.target.truncated)",
        tests=(
            "tests/batch/test_losses.py::test_a_lost_end_of_a_log_is_named_until_it_is_accepted_and_then_stays_known",
        ),
    ),
    Guard(
        name="lost-end-back",
        promise="An end that was too low for a moment is no loss once the same records are there again.",
        path="include/tidemark/reconcile/plan/log_extents.py",
        old="        and there.leader_epoch < lost.leader_epoch",
        new="        and False",
        tests=(
            "tests/batch/test_losses.py::test_an_end_that_was_too_low_for_a_moment_is_no_loss_once_the_records_are_back",
        ),
    ),
    Guard(
        name="seen-offsets-of-one-topic",
        promise="What is seen of a recreated topic does not count as seen of the one before.",
        path="include/tidemark/spark/monitor.py",
        old="if log.topic_id == self._topic_id and start < end:",
        new="if start < end:",
        tests=("tests/archive/test_progress.py::test_heartbeats_keep_what_was_seen_of_a_topic_that_is_recreated",),
    ),
    Guard(
        name="seen-offsets-carried-over",
        promise="A stream that starts again keeps what it saw of a deleted topic.",
        path="include/tidemark/spark/monitor.py",
        old="self._extents = widen(self._extents, before.extents)",
        new="pass",
        tests=("tests/archive/test_progress.py::test_heartbeats_keep_what_was_seen_of_a_topic_that_is_recreated",),
    ),
    Guard(
        name="open-transaction-waited-for",
        promise="No day is planned while an open transaction hides a part of it.",
        path="include/tidemark/core/targets.py",
        old="if hidden:",
        new="if False:",
        tests=("tests/batch/test_day_end.py::test_a_day_that_an_open_transaction_hides_a_part_of_is_not_planned",),
    ),
    Guard(
        name="hidden-records-read",
        promise="Every record that an open transaction hides is looked at, not only the first one.",
        path="include/tidemark/core/targets.py",
        old="in zip(offsets, timestamps_ms, strict=True) if time_ms < end_ms)",
        new="in zip(offsets[:1], timestamps_ms[:1], strict=True) if time_ms < end_ms)",
        tests=(
            "tests/core/test_targets.py::test_any_hidden_record_with_a_timestamp_before_the_days_end_may_be_of_them",
        ),
    ),
    Guard(
        name="open-at-first-waited-for",
        promise="A run waits for transactions that were open at its first look, and for no later ones.",
        path="include/tidemark/reconcile/plan/targets.py",
        old="if found is None or began_in_days or monotonic() >= deadline:",
        new="if True:",
        tests=(
            "tests/batch/test_day_end.py::test_where_a_transaction_is_always_open_only_what_was_there_at_first_is_waited_for",
        ),
    ),
    Guard(
        name="hidden-records-unread",
        promise="What an open transaction hides counts as of the day where it was not read to its end.",
        path="include/tidemark/core/targets.py",
        old="return next(found, read_up_to if read_up_to < hidden.end else None)",
        new="return next(found, None)",
        tests=(
            "tests/core/test_targets.py::test_any_hidden_record_with_a_timestamp_before_the_days_end_may_be_of_them",
        ),
    ),
    Guard(
        name="log-rewritten",
        promise="A log that ends before what is archived of it stops the plan.",
        path="include/tidemark/core/targets.py",
        old="if reached > high_watermark:",
        new="if False:",
        tests=(("tests/batch/test_plan.py::test_a_log_that_ends_before_its_archive_is_an_error_that_names_both_ends"),),
    ),
    Guard(
        name="late-rows-reopen",
        promise="Rows archived after a day's seal reopen that day.",
        path="include/tidemark/core/planner.py",
        old="if span is not None and (read is None or read.is_new(span, item)):",
        new="if False:",
        tests=("tests/core/test_planner.py::test_late_rows_reopen_a_sealed_day_and_leave_its_neighbour_as_it_is",),
    ),
    Guard(
        name="time-zone-kept",
        promise="A manifest whose days were made in another time zone is refused.",
        path="include/tidemark/core/seal.py",
        old="if found_zone != time_zone:",
        new="if False:",
        tests=("tests/core/test_planner.py::test_a_manifest_cut_in_another_time_zone_is_refused_by_both_names",),
    ),
    Guard(
        name="day-over-at-its-last-instant",
        promise="A day is over when its last instant is, even if the next day began before.",
        path="include/tidemark/core/days.py",
        old="    return spans[-1][1] if spans else",
        new="    return spans[0][1] if spans else",
        tests=("tests/core/test_days.py::test_a_day_is_over_when_its_last_instant_is",),
    ),
    Guard(
        name="days-ended-before",
        promise="A run takes no day that is not over, even for a minute of the next day.",
        path="include/tidemark/core/days.py",
        old="    while day_end(day, zone) > moment:",
        new="    if day_end(day, zone) > moment:",
        tests=("tests/core/test_days.py::test_a_day_is_over_when_its_last_instant_is",),
    ),
    Guard(
        name="same-clocks",
        promise="Java and Python know the same clocks of a stream's time zone.",
        path="include/tidemark/core/zone_rules.py",
        old="    if first.offsets == second.offsets and first.offsets:",
        new="    if first.offsets:",
        tests=(
            "tests/core/test_zone_rules.py::test_a_difference_names_both_versions_its_first_moment_and_the_older_data",
        ),
    ),
    *(
        Guard(
            name=f"same-clocks-{name}",
            promise="A stream or run starts only where Java and Python know the same clocks.",
            path=f"include/tidemark/{path}",
            old=old,
            new="",
            tests=(f"tests/spark/test_time_zone.py::{_CLOCKS}[{name}]",),
        )
        for name, path, old in (
            ("archive", "archive/stream/driver.py", "        require_same_clocks(spark, stream)\n"),
            ("speed", "speed/stream.py", "    require_same_clocks(spark, stream)\n"),
            ("refill", "reconcile/refill.py", "        require_same_clocks(spark, run.stream)\n"),
            ("rebuild", "reconcile/rebuild/step.py", "        require_same_clocks(spark, run.stream)\n"),
        )
    ),
)
