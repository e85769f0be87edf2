"""Guards of what people read in Airflow: pages, messages, notes and logs say why, and lead to what mends it."""

from tests.guards.guard import Guard

GUARDS = (
    Guard(
        name="tasks-lead-to-their-run",
        promise="A task of a run leads to the run's report, Data Docs and certificates.",
        path="include/tidemark_airflow/plugin.py",
        old='"task_instance"',
        new='"base"',
        tests=("tests/web/test_answers.py::test_dags_runs_and_tasks_have_a_tab_and_the_navigation_an_entry",),
    ),
)
