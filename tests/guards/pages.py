"""Guards of what people read in Airflow: pages, messages, notes and logs say why, and lead to what mends it."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="own-run-explains-day",
        promise="A day that is not sealed shows why its own last run failed, also after another day's run succeeded.",
        path="include/tidemark/pages/days.py",
        old="for item in (report, of_day) if",
        new="for item in (of_day,) if",
        tests=(
            "tests/web/test_sentences.py::test_a_failed_day_keeps_its_cause_after_a_run_of_another_day_has_succeeded",
        ),
    ),
    Guard(
        name="calendar-marks-failed-days",
        promise="The calendar marks a day whose newest run failed, whatever the stream's last run did.",
        path="include/tidemark/pages/day_calendar.py",
        old="        if failed or (concerned",
        new="        if (concerned",
        tests=("tests/web/test_sentences.py::test_a_day_whose_newest_run_failed_is_marked_if_it_is_not_sealed",),
    ),
    Guard(
        name="needs-lead-to-their-dag",
        promise="What a run would mend is shown with a link to the DAG, not only as a command.",
        path="include/tidemark/pages/needs.py",
        old="dags = (dag_id(status.stream),) if problem.kind in _MENDED_BY_A_RUN else ()",
        new="dags = ()",
        tests=("tests/web/test_sentences.py::test_a_problem_that_a_form_or_a_dag_mends_leads_there",),
    ),
    Guard(
        name="messages-link-days",
        promise="A message about days links the page of each, where a person can mend it.",
        path="include/tidemark/inspect/watch_message.py",
        old="for day in days[:_DAYS_MAX]]",
        new="for day in days[:0]]",
        tests=("tests/test_watch.py::test_a_message_about_days_links_the_page_of_each",),
    ),
    Guard(
        name="tasks-lead-to-their-run",
        promise="A task of a run leads to the run's report, Data Docs and certificates.",
        path="include/tidemark_airflow/plugin.py",
        old='"task_instance"',
        new='"base"',
        tests=("tests/web/test_answers.py::test_dags_runs_and_tasks_have_a_tab_and_the_navigation_an_entry",),
    ),
    Guard(
        name="error-logged-once",
        promise="The log of a task that fails for good has the error's text once.",
        path="include/tidemark_airflow/context.py",
        old=".with_traceback(error.__traceback__) from None",
        new=" from error",
        tests=("tests/dags/test_task_log.py::test_an_error_that_no_retry_mends_is_logged_once_with_its_place",),
    ),
    Guard(
        name="skip-says-why",
        promise="A skipped task says why in a line of its own.",
        path="include/tidemark_airflow/task_log.py",
        old='    log.info("Skipped: %s", because)\n',
        new="",
        tests=("tests/dags/test_task_log.py::test_a_skipped_approval_says_why",),
    ),
    Guard(
        name="libraries-stay-quiet",
        promise="A task's log has no line for each table that pyiceberg loads.",
        path="include/tidemark/tables/file_io.py",
        old='logging.getLogger("pyiceberg.io").setLevel(logging.WARNING)\n',
        new="",
        tests=("tests/dags/test_task_log.py::test_pyiceberg_says_nothing_of_each_table_that_it_loads",),
    ),
    Guard(
        name="note-keeps-words",
        promise="The note of a run has its days and the words of the person who wanted it.",
        path="include/tidemark_airflow/notes.py",
        old="            dag_run.note = _note(days, zone.name, why, own)",
        new='            dag_run.note = own or _note(days, zone.name, why, "")',
        tests=("tests/dags/test_notes.py::test_a_runs_note_names_its_days_and_why",),
    ),
)
