"""Run as a program: one round of what Airflow's scheduler does for DAGs that follow partitions of assets.

The scheduler of a local Airflow without schedules leaves this out, and runs what the round has made.
"""

from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.utils.session import create_session


def main() -> None:
    with create_session() as session:
        job = Job()  # type: ignore[no-untyped-call]
        session.add(job)
        session.flush()
        SchedulerJobRunner(job=job)._create_dagruns_for_partitioned_asset_dags(session)


if __name__ == "__main__":
    main()
