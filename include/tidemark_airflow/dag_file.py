"""What a file in Airflow's DAG folder calls."""

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from tidemark.connections.sources import variable
from tidemark.core.errors import ConfigError
from tidemark.orchestration.steps import Reconcile, reconciles
from tidemark.settings import plain_setting, streams_dir
from tidemark_airflow.backfill_dag import backfill_dag
from tidemark_airflow.manual_dags import maintenance_dag, replay_dag, rollback_dag
from tidemark_airflow.reconcile_dag import reconcile_dag, require_sound
from tidemark_airflow.watch_dag import WATCH, watch_dag, watch_interval

_SETTING = "streams_dir"
_OF_EVERY_STREAM: dict[str, Callable[[Sequence[Reconcile]], DAG]] = {
    "tidemark_backfill": backfill_dag,
    "tidemark_replay": replay_dag,
    "tidemark_rollback": rollback_dag,
    "tidemark_maintenance": maintenance_dag,
    WATCH: watch_dag,
}


def tidemark_dags(folder: str | Path | None = None) -> dict[str, DAG]:
    """The DAGs by id: ``reconcile_<stream>`` per definition in the folder, and five for all streams.

    A relative ``folder`` is searched for beside the DAG file, then in each folder above. Tasks and applications get the
    same folder. Without one, it is the setting's, ``TIDEMARK_STREAMS_DIR``.

    A broken definition has a DAG, too, without a schedule; ``check_dags`` shows it as an import error. A process
    that runs a task gets only that task's DAG. Raises ConfigError if there is no such folder, or the setting names
    another one.
    """
    streams = reconciles(_streams_folder(folder))
    wanted = get_parsing_context().dag_id
    found = {item.dag_id: reconcile_dag(item) for item in streams if wanted in (None, item.dag_id)}
    return found | {name: make(streams) for name, make in _OF_EVERY_STREAM.items() if wanted in (None, name)}


def check_dags(folder: str | Path | None = None) -> None:
    """Raise ConfigError that names every broken definition and every misnamed file in the folder, or a wrong setting of
    the watch.

    Airflow shows the error. It removes all DAGs of a file with an error, so call this in a file without any.
    ``folder`` is as for ``tidemark_dags``.
    """
    from tidemark_airflow.notifiers import require_notifiers  # only the file that calls this needs it

    require_sound(_streams_folder(folder))
    watch_interval()
    require_notifiers()


def _streams_folder(folder: str | Path | None) -> Path:
    if folder is None:
        return streams_dir()
    caller = inspect.stack(context=0)[2].filename
    found = _nearest(Path(folder), Path(caller).resolve().parent)
    given = plain_setting(_SETTING)
    if given.source != "default" and Path(given.value).resolve() != found:
        raise ConfigError(
            "two folders of stream definitions",
            expected=f"{found}, as in {caller}",
            found=given.value,
            where=f"{variable(_SETTING)}, {given.source}",
            hint="Name the folder in one place only",
        )
    os.environ[variable(_SETTING)] = str(found)  # for this process's tasks, and for the applications they start
    return found


def _nearest(folder: Path, start: Path) -> Path:
    places = [place / folder for place in (start, *start.parents)]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise ConfigError(
            "no such folder of stream definitions", expected=f"{folder} in {start} or a folder above", found="none"
        )
    return found.resolve()
