"""Guards of verification and of the current view: nothing counts as proven that was not read, no row comes twice."""

from tests.guards.guard import Guard

_BOTH = "tests/batch/test_both_tables.py"

GUARDS = (
    Guard(
        name="nothing-checked-is-unknown",
        promise="A verification without any check, or with one that could not be made, is unknown and not a pass.",
        path="include/tidemark/verify/result.py",
        old='return "unknown" if "unknown" in found or not checks else "proven"',
        new='return "proven"',
        tests=("tests/batch/test_verify_result.py::test_what_could_not_be_checked_is_unknown",),
    ),
    Guard(
        name="verified-checksum",
        promise="Verification notices a value that changed in an object.",
        path="include/tidemark/verify/archive.py",
        old='check.equal("checksum of an object\'s rows", expected=file.checksum, found=checksum.value,',
        new='check.equal("checksum", expected=file.checksum, found=file.checksum,',
        tests=("tests/batch/test_verify_lineage.py::test_a_value_that_changed_in_an_object_is_found_by_its_checksum",),
    ),
    Guard(
        name="verified-chain",
        promise="Verification notices a manifest that was altered.",
        path="include/tidemark/verify/archive.py",
        old="for link in broken_links(manifests, last):",
        new="for link in ():",
        tests=(
            "tests/batch/test_verify.py::test_an_altered_manifest_shows_in_the_chain_and_a_deleted_one_in_the_ranges",
        ),
    ),
    Guard(
        name="verified-counts",
        promise="Verification recounts what a seal claims.",
        path="include/tidemark/verify/day.py",
        old="check.equal(name, expected=number, found=claimed, where=where)",
        new="pass",
        tests=("tests/batch/test_verify.py::test_an_edited_count_in_the_seal_is_found",),
    ),
    Guard(
        name="verified-reach",
        promise="Verification disproves a seal that stops before rows of the day that were archived before its plan.",
        path="include/tidemark/verify/claims.py",
        old="subtract(archived, used),",
        new="(),",
        tests=(
            "tests/batch/test_verify_reach.py::test_rows_that_a_seal_stops_before_disprove_it_unless_they_came_later",
        ),
    ),
    Guard(
        name="verified-reach-used",
        promise="Verification disproves a seal that calls rows of the day lost which were archived before its plan.",
        path="include/tidemark/verify/claims.py",
        old="used = [item.range for item in sealed.used] if sealed is not None else []",
        new="used = [OffsetRange(start=0, end=sealed.end)] if sealed is not None else []",
        tests=(
            "tests/batch/test_verify_reach.py::test_an_archived_row_that_the_seal_calls_lost_disproves_it_unless_it_came_later",
        ),
    ),
    Guard(
        name="verified-lost-archived",
        promise="Verification names each manifest with offsets that a seal calls lost, if the plan could know it.",
        path="include/tidemark/verify/claims.py",
        old="(part for gap in lost if (part := batch.range.intersect(gap)) is not None),",
        new="(),",
        tests=(
            (
                "tests/batch/test_verify_reach.py"
                "::test_a_batch_with_lost_offsets_from_before_the_plan_is_named_with_offsets_manifest_and_seal"
            ),
        ),
    ),
    Guard(
        name="verified-copies",
        promise="Verification recounts the copies that a run did not read, also after later copies came.",
        path="include/tidemark/verify/claims.py",
        old='check.equal("duplicates_trimmed", expected=known, found=seal.duplicates_trimmed, where=where)',
        new="pass",
        tests=("tests/batch/test_verify_reach.py::test_copies_are_counted_as_the_run_did_or_a_note_says_why_not",),
    ),
    Guard(
        name="verified-later-copies",
        promise="Later copies of a version's records are not called missing from it.",
        path="include/tidemark/verify/archive.py",
        old="count(bits.without(self.rows[log]))",
        new="count(bits.ranges())",
        tests=(
            "tests/batch/test_verify_lineage.py::test_a_batch_is_of_the_version_by_its_number_whatever_its_writers_clock_says",
        ),
    ),
    Guard(
        name="verified-list-of-objects",
        promise="Verification notices a changed list of the objects that a day was read from.",
        path="include/tidemark/verify/claims.py",
        old="        _compare_named(store, layout, seal, check)",
        new="        pass",
        tests=("tests/batch/test_certificates.py::test_verify_finds_a_changed_list_and_another_day_before",),
    ),
    Guard(
        name="certificate-canonical",
        promise="A certificate with any other byte is refused, also where its JSON means the same.",
        path="include/tidemark_verify.py",
        old="if (written := canonical(value)) != body:",
        new="if (written := canonical(value)) is None:",
        tests=("tests/core/test_certificate.py::test_every_changed_byte_of_a_certificate_is_found",),
    ),
    Guard(
        name="certificate-signature",
        promise="A certificate with a signature that does not fit is refused.",
        path="include/tidemark_verify.py",
        old="if not ed25519_verifies(*parts):",
        new="if not parts:",
        tests=("tests/core/test_certificate.py::test_every_changed_byte_of_a_certificate_is_found",),
    ),
    Guard(
        name="certificate-objects",
        promise="A changed byte of an object is found by the certificate.",
        path="include/tidemark_verify.py",
        old='item.equal("SHA-256 of an object", sha256, found, where=key, hint=hint)',
        new="pass",
        tests=("tests/core/test_certificate.py::test_every_changed_byte_of_an_object_or_of_the_list_is_found",),
    ),
    Guard(
        name="certificate-chain",
        promise="A certificate in place of the one that a later certificate names is found.",
        path="include/tidemark_verify.py",
        old='item.equal("SHA-256 of a certificate before", sha256,',
        new='item.equal("", other.sha256,',
        tests=("tests/core/test_certificate.py::test_a_certificate_in_place_of_the_one_before_is_found",),
    ),
    Guard(
        name="delivery-unknown",
        promise="A comparison of the live topic that read nothing is unknown and not a pass.",
        path="include/tidemark/delivery_audit/report.py",
        old='open_ends or not self.archived or not self.records("delivered")',
        new="open_ends",
        tests=("tests/speed/test_delivery_report.py::test_only_a_completely_read_span_passes",),
    ),
    Guard(
        name="view-after-published",
        promise="The current view takes from the archive only what the table does not have.",
        path="include/tidemark/current_view/plan.py",
        old="subtract([spans[day, log]], _parts(trusted.get(day, {}).get(log, ()), spans[day, log]))",
        new="(spans[day, log],)",
        tests=("tests/batch/test_current_plan.py::test_every_archived_record_is_in_the_view_once",),
    ),
    Guard(
        name="view-without-worse-copies",
        promise="The current view leaves out published rows of which the archive has a better copy.",
        path="include/tidemark/current_view/plan.py",
        old="return normalise(item.range for item in inside if sealed is None or sealed.is_new(item.range, item.best))",
        new="return normalise(item.range for item in inside if False)",
        tests=(
            (
                "tests/batch/test_current_plan.py"
                "::test_a_record_of_a_better_copy_archived_after_the_seal_is_in_the_view_once"
            ),
        ),
    ),
    Guard(
        name="verified-days-by-calendar",
        promise="Verification counts the rows in every span of the day.",
        path="include/tidemark/verify/archive.py",
        old="    for start, end in spans:\n        found |=",
        new="    for start, end in spans[:1]:\n        found |=",
        tests=("tests/batch/test_calendar.py::test_verify_counts_the_rows_of_the_day_and_no_others",),
    ),
    Guard(
        name="version-by-batch-numbers",
        promise="Which copies a version counts depends on the writers' batch numbers, and on no clock.",
        path="include/tidemark/verify/lineage.py",
        old="return self.named(writer, batch) or self.used(identity)",
        new="return self.used(identity)",
        tests=(
            "tests/batch/test_verify_lineage.py::test_a_batch_is_of_the_version_by_its_number_whatever_its_writers_clock_says",
        ),
    ),
    Guard(
        name="last-batches-sealed",
        promise="A seal names the last batch of each writer that was archived before the run's targets were fixed.",
        path="include/tidemark/reconcile/seal.py",
        old="last_batches=run.require(PLAN).archive.last_batches",
        new="last_batches=run.require(FINALIZE_PLAN).archive.last_batches",
        tests=("tests/batch/test_seal.py::test_every_rebuilt_day_gets_a_seal_with_what_was_proven",),
    ),
    Guard(
        name="verified-reach-by-number",
        promise="Verification disproves a seal that lacks rows of a batch it names, whatever the writer's clock says.",
        path="include/tidemark/verify/lineage.py",
        old="return self.named(writer, batch) or committed_at_us < until_us",
        new="return committed_at_us < until_us",
        tests=("tests/batch/test_verify_reach.py::test_a_batch_that_the_seal_names_is_never_late",),
    ),
    Guard(
        name="verified-reach-by-time",
        promise="Verification disproves a seal whose run overlooked old batches, and so named none of them.",
        path="include/tidemark/verify/lineage.py",
        old="return self.named(writer, batch) or committed_at_us < until_us",
        new="return self.named(writer, batch)",
        tests=(
            "tests/batch/test_verify_reach.py::test_rows_that_a_seal_stops_before_disprove_it_unless_they_came_later",
        ),
    ),
    Guard(
        name="verified-half-publication",
        promise="Verification disproves a day of which a run has published the quarantine and not the table.",
        path="include/tidemark/verify/readers.py",
        old="    if shown.is_half:\n",
        new="    if False:\n",
        tests=(f"{_BOTH}::test_verification_calls_half_a_publication_a_difference_that_names_both_runs",),
    ),
    Guard(
        name="verified-unsealed-publication",
        promise="Verification does not call a day proven while readers see rows that no seal names.",
        path="include/tidemark/verify/readers.py",
        old="    if any(shown.is_of(*pair) for pair in claims.snapshots):\n",
        new="    if True:\n",
        tests=(f"{_BOTH}::test_verification_proves_nothing_while_readers_see_a_publication_without_a_seal",),
    ),
    Guard(
        name="verified-quarantine-readers",
        promise="Verification compares the quarantine that readers see with the sealed one.",
        path="include/tidemark/verify/readers.py",
        old="        compared.compare(side, {aside for _, aside in claims.snapshots})",
        new="        pass",
        tests=("tests/batch/test_verify.py::test_a_row_deleted_from_the_quarantine_is_found_where_readers_see_it",),
    ),
)
