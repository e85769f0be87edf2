"""Airflow's OpenLineage provider, where it is installed: who has started a step, and what the step reads and writes."""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidemark.lineage.run_events import PARENT, ROOT, given_ancestors
from tidemark.reconcile.results import ROLLBACK, STEPS

if TYPE_CHECKING:
    from tidemark.run import Run

_LOG = logging.getLogger(__name__)
_STEPS = {step.name: step for step in (*STEPS, ROLLBACK)}


def name_task(context: Any) -> None:
    """Give this process, and those that it starts, the ids of the task's run and of the DAG's run.

    Does nothing where the provider is missing or has nowhere to send events.
    """
    if not _enabled():
        return
    from airflow.providers.openlineage.plugins import macros

    try:
        task_instance = context["ti"]
        ids = macros.lineage_parent_id(task_instance), macros.lineage_root_parent_id(task_instance)
    except Exception as error:  # noqa: BLE001  # lineage must not fail the work
        _LOG.warning("Airflow's OpenLineage provider does not name the task: %r", error)
    else:
        os.environ.update(zip((PARENT, ROOT), ids, strict=True))


def _enabled() -> bool:
    try:
        from airflow.providers.openlineage import conf
    except ImportError:
        return False
    return not conf.is_disabled()


def spark_properties() -> dict[str, str]:
    """The same ids as properties of a Spark application, whose names are those of OpenLineage's listener."""
    above = given_ancestors()
    if above is None:
        return {}
    runs = {"parent": above.parent, "rootParent": above.root or above.parent}
    return {
        f"spark.openlineage.{kind}{field}": text
        for kind, run in runs.items()
        for field, text in (("RunId", run.run_id), ("JobNamespace", run.namespace), ("JobName", run.name))
    }


def task_lineage(open_run: Callable[[], "Run"], step: str) -> Any:
    """What a step has read and written, for the event that Airflow sends about its task; None where it sends none.

    Ask while the task runs: for the event, the provider has a process that it ends after ten seconds.
    """
    known = _STEPS.get(step)
    if known is None or not _enabled():
        return None
    from airflow.providers.openlineage.extractors import OperatorLineage

    from tidemark.lineage.run_events import input_datasets, output_datasets
    from tidemark.reconcile.lineage import step_data

    try:
        run = open_run()
        found = run.outcome(known)
        data = step_data(run, known, found.result if found else None)
    except Exception as error:  # noqa: BLE001  # lineage must not fail the work
        _LOG.warning("cannot find the datasets of step %s: %r", step, error)
        return None
    return OperatorLineage(inputs=input_datasets(data.inputs), outputs=output_datasets(data.outputs))
