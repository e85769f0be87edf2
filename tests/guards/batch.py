"""Guards of rebuild, audit, publication and seal: a day is proven, published once, and never half of it."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="report-after-a-hand",
        promise="A run that a person marks as failed is reported, and lets the stream's next run begin.",
        path="include/tidemark_airflow/reconcile_dag.py",
        old='        tasks["report"].as_teardown()\n',
        new="",
        tests=("tests/dags/test_dags.py::test_the_steps_follow_each_other_and_the_last_task_decides",),
    ),
    Guard(
        name="stopped-run-fails",
        promise="A run of which a step failed or is missing does not count as a success.",
        path="include/tidemark/orchestration/tasks.py",
        old='    if verdict["status"] in NOT_ENDED:\n',
        new="    if False:\n",
        tests=(
            (
                "tests/dags/test_attempts.py"
                "::test_a_run_whose_report_says_that_a_step_failed_or_is_missing_does_not_succeed"
            ),
        ),
    ),
    Guard(
        name="outcome-of-this-attempt",
        promise="A task reports what its own application saved, and never an earlier one's outcome.",
        path="include/tidemark_airflow/spark_job.py",
        old="    if saved(step, run) == before:\n",
        new="    if False:\n",
        tests=("tests/dags/test_attempts.py::test_an_attempt_that_was_killed_does_not_give_an_earlier_ones_reason",),
    ),
    Guard(
        name="verdict-of-the-library",
        promise="A check passes where Great Expectations says so, whatever the form of its result.",
        path="include/tidemark/reconcile/audit/expectations.py",
        old='    if check.expectation in _SILENT or "observed_value" not in result:\n',
        new='    if "observed_value" not in result:\n',
        tests=(
            (
                "tests/expectations/test_every_expectation.py"
                "::test_a_verdict_is_the_librarys_whatever_the_form_of_its_result"
            ),
        ),
    ),
    Guard(
        name="no-value-no-verdict",
        promise="A check of a column without a value is unknown, also where the library's result does not say so.",
        path="include/tidemark/reconcile/audit/expectations.py",
        old="            saw_value = number not in any_value or bool(results[any_value[number]].success)\n",
        new="            saw_value = True\n",
        tests=("tests/batch/test_held.py::test_a_check_that_saw_no_value_is_unknown",),
    ),
    Guard(
        name="loss-of-unknown-time",
        promise="The answer on a day names lost offsets of which no record shows the day.",
        path="include/tidemark/reconcile/report/use.py",
        old="    undated = count([*from_ends, *(gap.range for gap in gaps if not _has_time(gap))])\n",
        new="    undated = 0\n",
        tests=(
            "tests/report/test_use.py::test_page_and_index_have_one_answer_and_a_loss_that_may_be_of_the_day_limits_it",
        ),
    ),
    Guard(
        name="limits-of-an-unchanged-day",
        promise="The answer on a day that stays as it is has the limits that its seal has.",
        path="include/tidemark/reconcile/report/use.py",
        old="    found = limits_of(summary)\n",
        new="    found: tuple[str, ...] = ()\n",
        tests=("tests/report/test_use.py::test_a_day_that_stays_as_it_is_has_the_limits_that_its_seal_has",),
    ),
    Guard(
        name="unjudged-is-not-passed",
        promise="The answer on a day does not count a check as passed that could not be judged yet.",
        path="include/tidemark/reconcile/report/use.py",
        old="    if not unjudged:\n",
        new="    if passed:\n",
        tests=("tests/report/test_use.py::test_checks_that_could_not_be_judged_yet_do_not_count_as_passed",),
    ),
    Guard(
        name="axis-in-words",
        promise="The axis of a log's offsets has a title and a description, as each other chart of a report.",
        path="include/tidemark/reconcile/report/offset_axis.py",
        old="        about=_about(log),\n",
        new='        about="",\n',
        tests=(
            (
                "tests/report/test_report_page.py"
                "::test_the_axis_of_each_log_has_a_title_a_description_and_its_figures_as_a_table"
            ),
        ),
    ),
    Guard(
        name="conservation",
        promise="No row is lost or doubled between the archive and the rebuilt day.",
        path="include/tidemark/reconcile/rebuild/step.py",
        old="                    require_conserved(rebuilt)\n",
        new="",
        tests=("tests/batch/test_rebuild.py::test_rows_a_transformation_drops_are_noticed",),
    ),
    Guard(
        name="planned-days-only",
        promise="A rebuild writes rows of its planned days only, though its files hold others.",
        path="include/tidemark/reconcile/rebuild/step.py",
        old="return rows.where(day.isin(list(days)))",
        new="return rows",
        tests=("tests/batch/test_rebuild.py::test_only_the_planned_day_changes_though_its_files_hold_others",),
    ),
    Guard(
        name="schema-change-refused",
        promise="A table's column is never changed to a type that cannot hold its values.",
        path="include/tidemark/tables/schema_evolution.py",
        old="if _widens(table, definition):",
        new="if table != definition:",
        tests=(("tests/batch/test_evolution.py::test_every_lossy_change_is_refused_with_both_types_and_what_to_do"),),
    ),
    Guard(
        name="unknown-check-blocks",
        promise="A critical check that saw no value blocks publication: it is unknown, not passed.",
        path="include/tidemark/reconcile/audit/checks.py",
        old="return self.success is True or self.without_history",
        new="return self.success is not False",
        tests=("tests/batch/test_audit.py::test_a_day_whose_every_record_was_quarantined_is_unknown_not_passed",),
    ),
    Guard(
        name="too-little-history-is-unknown",
        promise="A day with too few earlier days to compare with is unknown, not passed.",
        path="include/tidemark/reconcile/audit/history.py",
        old='if len(found) < min(HISTORY_MIN, arguments["weekdays"]):',
        new="if not found:",
        tests=("tests/batch/test_history_rules.py::test_too_few_earlier_days_are_unknown_and_block_nothing",),
    ),
    Guard(
        name="audit-gate",
        promise="Only a branch that passed its audit is published.",
        path="include/tidemark/reconcile/publish.py",
        old='if audit is None or audit.status != "ok" or audit.result is None or not audit.result.passed:',
        new="if audit is None or audit.result is None:",
        tests=("tests/batch/test_audit.py::test_a_failing_critical_check_blocks_publication_and_leaves_the_old_day",),
    ),
    Guard(
        name="audit-of-these-rows",
        promise="The task of the audit reports only what the rebuild's application found of the rows it wrote.",
        path="include/tidemark/orchestration/tasks.py",
        old="return audit.started_at >= rebuild.started_at and audit.result.staged == written",
        new="return True",
        tests=(
            (
                "tests/dags/test_attempts.py"
                "::test_the_first_try_of_an_audit_reports_what_the_rebuilds_application_found_of_its_rows"
            ),
        ),
    ),
    Guard(
        name="no-bounds-with-nan",
        promise="A column of numbers with NaN is left to a scan: the bounds in its files say nothing of NaN.",
        path="include/tidemark/tables/column_statistics.py",
        old="exact = isinstance(kind, _WHOLE) or (file.nan_value_counts or {}).get(number) == 0",
        new="exact = True",
        tests=("tests/batch/test_from_statistics.py::test_files_of_spark_with_nan_have_the_librarys_verdicts",),
    ),
    Guard(
        name="history-once",
        promise="A repeated seal leaves each version's rows in the history once.",
        path="include/tidemark/tables/history.py",
        old='rows = [row for row in there if (row["day"], row["version"]) not in replaced]',
        new="rows = list(there)",
        tests=("tests/batch/test_history_tables.py::test_a_repeat_replaces_what_a_cut_off_attempt_wrote",),
    ),
    Guard(
        name="late-day-may-wait",
        promise="Only a day that has a sealed version keeps it when its new rows do not pass.",
        path="include/tidemark/reconcile/held_days.py",
        old='item.day: item.reason == "late" or (item.version > 1 and not finalized.force)',
        new="item.day: True",
        tests=("tests/batch/test_left_out.py::test_a_day_that_the_run_can_not_do_without_stops_it",),
    ),
    Guard(
        name="published-since",
        promise="A run does not publish over a day that another run has published since it was planned.",
        path="include/tidemark/tables/iceberg.py",
        old="self._require_unchanged(table, wanted)",
        new="pass",
        tests=(
            (
                "tests/batch/test_publish.py"
                "::test_a_run_planned_before_another_published_is_refused_even_if_it_rebuilt_after"
            ),
        ),
    ),
    Guard(
        name="repeat-under-another-run",
        promise="A repeat does not count on a publication that another run has replaced in one of the tables.",
        path="include/tidemark/tables/day_publications.py",
        old="if not sealed and not set(published).isdisjoint(wanted):",
        new="if False:",
        tests=("tests/batch/test_both_tables.py::test_a_repeat_finds_its_publication_as_long_as_readers_see_it",),
    ),
    Guard(
        name="rollback-ends-a-half",
        promise="A rollback publishes both tables where one of them does not show the latest version.",
        path="include/tidemark/reconcile/rollback.py",
        old="aside is None or aside.snapshot_id == latest.quarantine_snapshot_id",
        new="True",
        tests=(
            (
                "tests/batch/test_both_tables.py"
                "::test_a_rollback_publishes_both_tables_unless_both_show_the_latest_version"
            ),
        ),
    ),
    Guard(
        name="sealed-in-both-tables",
        promise="No run seals a day whose quarantine another run has published since.",
        path="include/tidemark/reconcile/seal.py",
        old="            (run.stream.quarantine_table, seen.quarantine, published.quarantine_snapshot_id),\n",
        new="",
        tests=("tests/batch/test_seal.py::test_no_run_seals_rows_beside_those_of_another_run_in_either_table",),
    ),
    Guard(
        name="publication-compares",
        promise="Iceberg refuses a publication where another writer has changed the day since the branch was made.",
        path="include/tidemark/tables/iceberg.py",
        old="change = change.validateNoConflictingData().validateNoConflictingDeletes()",
        new="pass",
        tests=("tests/batch/test_publish.py::test_another_writer_of_the_same_day_is_refused_by_iceberg",),
    ),
    Guard(
        name="same-plan",
        promise="A run whose plan was finalized again after the rebuild is neither published nor sealed.",
        path="include/tidemark/reconcile/fingerprints.py",
        old="if rebuilt.plan != plan_fingerprint(plan):",
        new="if False:",
        tests=(
            "tests/batch/test_publish.py::test_a_plan_finalized_again_after_the_rebuild_is_neither_published_nor_sealed",
        ),
    ),
    Guard(
        name="published-since-plan",
        promise="A run that finalizes its plan after another run published the day does not publish over it.",
        path="include/tidemark/reconcile/publish.py",
        old="main = run.require(PLAN).main",
        new='main = __import__("tidemark.tables.snapshots", fromlist=["_"]).main_snapshots(run.settings, run.stream)',
        tests=(
            "tests/batch/test_superseded.py::test_a_run_is_refused_a_day_that_another_run_published_after_its_plan",
        ),
    ),
    Guard(
        name="lease-one-holder",
        promise="One reconcile run of a stream at a time holds the stream's lease.",
        path="include/tidemark/reconcile/lease.py",
        old="if holder is not None and not _is_dead(holder, has_ended, now):",
        new="if False:",
        tests=(
            "tests/batch/test_lease.py::test_of_many_that_take_the_lease_at_once_one_has_it_and_the_others_know_which",
        ),
    ),
    Guard(
        name="lease-from-the-future",
        promise="A lease that was taken under a clock a year ahead blocks nobody for a year.",
        path="include/tidemark/reconcile/lease.py",
        old="return abs(timedelta(microseconds=now - holder.renewed_at_us)) > EXPIRES_AFTER",
        new="return timedelta(microseconds=now - holder.renewed_at_us) > EXPIRES_AFTER",
        tests=("tests/core/test_lease_clock.py::test_a_lease_is_held_only_by_a_renewal_within_half_an_hour_of_now",),
    ),
    Guard(
        name="unreadable-heartbeat-stops-no-plan",
        promise="A heartbeat that does not parse stops no run.",
        path="include/tidemark/archive/heartbeats.py",
        old="    except FormatError as error:",
        new="    except ZeroDivisionError as error:",
        tests=("tests/core/test_health.py::test_what_a_heartbeat_says_of_deleted_topics_outlives_it",),
    ),
    Guard(
        name="heartbeats-extents-kept",
        promise="What the archive stream has seen of deleted topics is kept, although its heartbeat is replaced.",
        path="include/tidemark/reconcile/plan/log_extents.py",
        old="extents=widen(known.extents, () if beat is None else beat.extents)",
        new="extents=known.extents",
        tests=("tests/core/test_health.py::test_what_a_heartbeat_says_of_deleted_topics_outlives_it",),
    ),
    Guard(
        name="unreadable-heartbeat-hides-no-layer",
        promise="A heartbeat that does not parse hides no other layer.",
        path="include/tidemark/inspect/health.py",
        old="    except FormatError as error:",
        new="    except ZeroDivisionError as error:",
        tests=("tests/core/test_health.py::test_an_unreadable_heartbeat_is_named_and_the_other_layers_are_shown",),
    ),
    Guard(
        name="early-heartbeat-read",
        promise="A heartbeat that an early version wrote is read.",
        path="include/tidemark/core/heartbeat.py",
        old='            raw = {**_LACK[raw["format"]], **raw}',
        new="            pass",
        tests=("tests/core/test_heartbeat.py::test_each_form_of_format_1_reads_with_defaults_for_missing_fields",),
    ),
    Guard(
        name="heartbeat-from-the-future",
        promise="A heartbeat from the future does not count as a layer that runs.",
        path="include/tidemark/inspect/health.py",
        old="and abs(age) <= stale_seconds,",
        new="and age <= stale_seconds,",
        tests=("tests/core/test_health.py::test_a_heartbeat_from_the_future_is_reported_and_its_layer_is_not_alive",),
    ),
    Guard(
        name="lease-held-by-steps",
        promise="A step works only while its run holds the stream's lease.",
        path="include/tidemark/orchestration/tasks.py",
        old="if step in LEASED else nullcontext()",
        new="if not LEASED else nullcontext()",
        tests=("tests/dags/test_attempts.py::test_no_step_works_while_another_run_holds_the_streams_lease",),
    ),
    Guard(
        name="lease-before-publication",
        promise="A run that lost the stream's lease publishes nothing.",
        path="include/tidemark/reconcile/publish.py",
        old="            check_lease(run)\n",
        new="",
        tests=("tests/batch/test_publish.py::test_a_run_that_lost_the_streams_lease_publishes_nothing",),
    ),
    Guard(
        name="lease-before-seal",
        promise="A run that lost the stream's lease seals nothing.",
        path="include/tidemark/reconcile/seal.py",
        old="        check_lease(run)\n",
        new="",
        tests=("tests/batch/test_lease.py::test_a_run_that_lost_its_lease_seals_nothing_until_that_is_free_again",),
    ),
    Guard(
        name="seal-once",
        promise="A version of a day is sealed once, by one run.",
        path="include/tidemark/tables/seals.py",
        old="if run.store.put_if_absent(key, seal.to_json()):",
        new="if run.store.put(key, seal.to_json()) is None:",
        tests=("tests/batch/test_seal.py::test_a_day_that_another_run_sealed_meanwhile_is_a_conflict_that_names_both",),
    ),
    Guard(
        name="seal-chain",
        promise="A later version's seal names the digest of the version before it.",
        path="include/tidemark/tables/seals.py",
        old="return digest(body)",
        new='return digest(b"")',
        tests=("tests/batch/test_seal.py::test_late_rows_seal_a_second_version_that_chains_to_the_first",),
    ),
    Guard(
        name="seal-needs-audit",
        promise="A day that failed its checks is not sealed.",
        path="include/tidemark/reconcile/seal.py",
        old="if unfit or not audit.passed:",
        new="if False:",
        tests=("tests/batch/test_seal.py::test_a_day_that_failed_its_checks_is_not_sealed",),
    ),
    Guard(
        name="seal-conserves",
        promise="A seal counts every row that was read as published, quarantined or removed by key.",
        path="include/tidemark/core/seal.py",
        old="if self.rows_read != self.rows_published + self.rows_quarantined + self.rows_removed:",
        new="if False:",
        tests=("tests/core/test_roundtrips.py::test_a_seal_whose_rows_are_not_conserved_is_refused",),
    ),
    Guard(
        name="seal-tiles",
        promise="The ranges of a seal follow each other without a gap or an overlap.",
        path="include/tidemark/core/seal.py",
        old="if part.start != at:",
        new="if False:",
        tests=("tests/core/test_roundtrips.py::test_a_seal_whose_ranges_do_not_tile_its_log_is_refused",),
    ),
)
