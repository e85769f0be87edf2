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
)
