"""Which tasks get a pool's free slots first. Airflow's scheduler asks when it creates a task instance."""

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy
from airflow.utils.types import DagRunType

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

# More than Airflow's default rule gives to any task of Tidemark: that counts the tasks which follow it.
_SCHEDULED = 100
FIRST = 1_000  # the weight of tasks that come before every run's


class ScheduledFirst(PriorityWeightStrategy):
    """Tasks of scheduled runs come before those of runs that a person, a backfill or the watch has started."""

    def get_weight(self, ti: "TaskInstance") -> int:
        """The task's own weight, and more in a scheduled run."""
        own: int = ti.task.priority_weight  # type: ignore[union-attr]  # Airflow sets the task before it asks
        return own + (_SCHEDULED if DagRunType.from_run_id(ti.run_id) == DagRunType.SCHEDULED else 0)


# As a DAG names it. Airflow finds the class in the plugin.
SCHEDULED_FIRST = f"{ScheduledFirst.__module__}.{ScheduledFirst.__name__}"
