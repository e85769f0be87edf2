"""Guards of a record's one day: what decided it is kept with each copy, and copies that disagree are noticed."""

from tests.guards.guard import Guard

_SETTINGS = "tests/archive/test_day_settings.py"
_RULE = "tests/core/test_day_conflicts.py"
_PLANS = "tests/batch/test_day_copies.py"

GUARDS = (
    Guard(
        name="day-settings-committed",
        promise="Each batch is committed with the keys that decided the days of its records.",
        path="include/tidemark/archive/manifests.py",
        old="day_settings=stream.day_settings if day_settings is None else day_settings,",
        new="day_settings=day_settings,",
        tests=(f"{_SETTINGS}::test_a_batch_is_committed_with_the_keys_that_decided_its_days",),
    ),
    Guard(
        name="day-settings-in-the-ledger",
        promise="The ledger keeps the day settings of each range.",
        path="include/tidemark/archive/ledger/ledger.py",
        old="settings.index(text) for text in part.day_settings",
        new="0 for text in part.day_settings",
        tests=(f"{_SETTINGS}::test_the_ledger_keeps_the_settings_of_each_range_through_segments_and_merges",),
    ),
    Guard(
        name="day-settings-compacted-apart",
        promise="A compaction joins no ranges of different day settings.",
        path="include/tidemark/maintenance/grouping.py",
        old="return adjacent and before.day_settings == item.day_settings",
        new="return adjacent",
        tests=(f"{_SETTINGS}::test_a_compaction_joins_no_ranges_of_different_day_settings",),
    ),
    Guard(
        name="unknown-settings-compared",
        promise="Copies from before manifests had day settings are compared, too.",
        path="include/tidemark/core/committed.py",
        old="if not all_settings and len(known) < 2 and None not in known:",
        new="if not all_settings and len(known) < 2:",
        tests=(f"{_RULE}::test_copies_of_equal_known_settings_agree_without_a_comparison",),
    ),
    Guard(
        name="record-in-no-day",
        promise="A record that copies leave in no sealed day is noticed.",
        path="include/tidemark/core/day_conflicts.py",
        old="return having > 1 or (not having and all(day in sealed for _, day in claims))",
        new="return having > 1",
        tests=(f"{_RULE}::test_records_that_the_opposite_change_leaves_in_no_day_are_named",),
    ),
    Guard(
        name="record-in-two-days",
        promise="A record that copies put into two sealed days is noticed.",
        path="include/tidemark/core/day_conflicts.py",
        old="having = sum(day in used.days for used, day in claims)",
        new="having = min(1, sum(day in used.days for used, day in claims))",
        tests=(f"{_RULE}::test_records_that_another_days_key_moves_into_a_second_day_are_named",),
    ),
    Guard(
        name="same-copies-again",
        promise="A plan uses the copies that were used before if no copy has the current day settings.",
        path="include/tidemark/core/planner.py",
        old="return best_cover(whole, committed, first=current, then=before)",
        new="return best_cover(whole, committed, first=current)",
        tests=(f"{_RULE}::test_a_plan_uses_the_current_settings_first_and_then_what_was_used_before",),
    ),
    Guard(
        name="disagreeing-copies-refused",
        promise="No run is planned that puts a record into two sealed days, or into none.",
        path="include/tidemark/reconcile/plan/step.py",
        old="while conflicts := planner.day_conflicts(plan):",
        new="while conflicts := tuple[DayConflict, ...]():",
        tests=(f"{_PLANS}::test_a_day_that_would_have_records_of_another_sealed_day_is_refused",),
    ),
    Guard(
        name="finalized-copies-agree",
        promise="A plan is finalized only if the copies archived since put no record into two sealed days.",
        path="include/tidemark/reconcile/plan/step.py",
        old="if conflicts := planner.day_conflicts(plan):\n            raise",
        new="if conflicts := tuple[DayConflict, ...]():\n            raise",
        tests=(f"{_PLANS}::test_copies_that_are_archived_between_plan_and_refill_are_compared_too",),
    ),
    Guard(
        name="reassigned-days-finalized",
        promise="All days that records move between are rebuilt in one run.",
        path="include/tidemark/reconcile/plan/step.py",
        old="            planned.reassigned,\n",
        new="            (),\n",
        tests=(f"{_PLANS}::test_reassigned_days_are_planned_together_and_later_plans_use_the_same_copies",),
    ),
    Guard(
        name="held-back-day-counts",
        promise="A day that may keep its version counts with the copies of that version, too.",
        path="include/tidemark/reconcile/plan/day_copies.py",
        old="dict.fromkeys(days - stays, used[log])",
        new="dict.fromkeys(days, used[log])",
        tests=(
            f"{_PLANS}::test_a_late_day_that_may_keep_its_version_is_not_rebuilt_beside_a_day_that_takes_its_records",
        ),
    ),
    Guard(
        name="rollback-moves-no-record",
        promise="A rollback brings back no version whose records are in other sealed days now.",
        path="include/tidemark/reconcile/plan/day_copies.py",
        old="latest = {**_latest(latest_seals(run.store, run.layout)), restored.day: restored}",
        new="latest = _latest(latest_seals(run.store, run.layout))",
        tests=(f"{_PLANS}::test_a_version_from_before_records_moved_does_not_come_back",),
    ),
    Guard(
        name="verified-over-all-days",
        promise="Verification of all days notices a record in two of them.",
        path="include/tidemark/verify/day_copies.py",
        old="found += find_conflicts(items, about, rows.read)",
        new="pass",
        tests=(f"{_PLANS}::test_all_days_together_show_a_record_in_two_days_with_both_days_seals_and_settings",),
    ),
    Guard(
        name="verified-copies-of-a-day",
        promise="Verification of one day notices its records in another sealed day.",
        path="include/tidemark/verify/day_copies.py",
        old="seals = self.seals() if latest else {}",
        new="seals = dict[date, Seal]()",
        tests=(f"{_PLANS}::test_all_days_together_show_a_record_in_two_days_with_both_days_seals_and_settings",),
    ),
)
