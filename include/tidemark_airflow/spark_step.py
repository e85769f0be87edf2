"""What every Spark step does, however its application is submitted; and the class of a deployment that submits it.

Such a class is ``SparkStep`` before an operator of Airflow. In ``prepare`` it fills in what the operator submits::

    class LivyStep(SparkStep, LivyOperator):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(file="", polling_interval=30, **kwargs)

        def prepare(self, job: SparkJob) -> None:
            file = f"local:///opt/tidemark/spark_apps/{job.file}"
            self.spark_params |= {"file": file, "args": [*job.arguments], "conf": job.conf("yarn")}

Parsing the DAGs imports this module, so it imports neither Spark nor an operator that may not be installed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from tidemark.connections.spark_submit import checked_way
from tidemark.core.errors import ConfigError
from tidemark.orchestration import tasks
from tidemark.settings import plain_setting
from tidemark_airflow.assets import announce
from tidemark_airflow.connections import open_run
from tidemark_airflow.context import explained
from tidemark_airflow.lineage import name_task, task_lineage
from tidemark_airflow.spark_job import SparkJob, ended, no_outcome, rolled_back, saved, spark_job
from tidemark_airflow.task_log import log_begin, log_end, log_skip

if TYPE_CHECKING:
    from tidemark.run import Run

_SETTING = "TIDEMARK_SPARK_SUBMIT"
_OWN_CLASSES = {
    "client": "tidemark_airflow.submit:ClientStep",
    "cluster": "tidemark_airflow.submit:ClusterStep",
    "kubernetes": "tidemark_airflow.submit_kubernetes:KubernetesStep",
}
_PROVIDERS = {
    "tidemark_airflow.submit": "airflow-provider-tidemark[spark]",
    "tidemark_airflow.submit_kubernetes": "apache-airflow-providers-cncf-kubernetes",
}
# In Airflow's state of the task: the outcome that was there before the application was submitted.
_BEFORE = "tidemark_outcome_before"


class SparkStep(BaseOperator):
    """Submits ``spark_apps/<step>.py`` for a stream and this DAG run, with the operator that it is combined with.

    How the step ended is what the application saved in S3, whatever the operator reports. A failure is the
    application's own. A success without a saved result is a failure. The operator's error stands where the application
    saved nothing, for example because it was killed. This holds after a deferral, too.

    ``form`` names the run's parameters that the application gets as arguments. The events of the task's outlets name
    the days in the step's result. ``stream`` is the only template: what ``prepare`` fills in is not rendered, and no
    page of Airflow shows it.
    """

    template_fields: Sequence[str] = ("stream",)

    def __init__(self, *, step: str, stream: str, form: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self.stream = stream
        self.form = form
        self._before = ""
        self._lineage: Any = None

    def prepare(self, job: SparkJob) -> None:
        """Fill the operator's fields for this job. Called before it submits, and again after a deferral.

        A ConfigError that it raises fails the task without further tries.
        """
        raise NotImplementedError

    def reconnects(self, context: Any) -> bool:
        """Whether the operator may find the application of an earlier attempt, and wait for that one."""
        key, store = getattr(self, "external_id_key", None), context.get("task_state_store")
        return bool(key and store is not None and store.get(key))

    def remember(self, context: Any) -> None:
        """Remember which outcome is there before a submission, so that it isn't taken for the new application's."""
        self._before = saved(self.step, self._run(context))
        if (store := context.get("task_state_store")) is not None:
            store.set(_BEFORE, self._before)

    def execute(self, context: Any, **resumed: Any) -> None:
        """Raises AirflowSkipException where there is nothing to do, else what the application saved as its failure.

        What an earlier step's application has done, too, is only reported; a later try does it with its own.
        """
        run = explained(lambda: self._run(context))
        if because := explained(lambda: tasks.nothing_to_do(self.step, run)):
            raise log_skip(self.log, because)
        if context["ti"].try_number == 1 and explained(lambda: tasks.done_before(self.step, run)):
            with self._logged(context, run):
                self._raise_reason(context, None)
            return
        operator: Any = super()
        self._do(context, lambda: operator.execute(context, **resumed), submits=True)

    def submit_job(self, context: Any) -> Any:
        """What a resumable operator calls in ``execute``, unless it reconnects."""
        self.remember(context)
        return super().submit_job(context)  # type: ignore[misc]  # the operator's

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Any) -> Any:
        """What Airflow calls after a deferral. It has no result but the one in S3."""
        operator: Any = super()
        if next_method == "execute":  # the operator waited for something else, and submits now
            return operator.resume_execution(next_method, next_kwargs, context)
        self._do(context, lambda: operator.resume_execution(next_method, next_kwargs, context), submits=False)
        return None

    def get_openlineage_facets_on_complete(self, _task_instance: Any) -> Any:
        """What Airflow's OpenLineage provider asks for, also after a failure."""
        return self._lineage

    def _do(self, context: Any, act: Callable[[], object], *, submits: bool) -> None:
        run = explained(lambda: self._run(context))
        with self._logged(context, run):
            asked = {name: context["params"][name] for name in self.form}
            explained(lambda: self.prepare(spark_job(self.step, run, asked)))
            if submits and not self.reconnects(context):
                explained(lambda: self.remember(context))
            with explained(lambda: tasks.holding(self.step, run)):
                try:
                    act()
                except Exception as error:  # noqa: BLE001  # operators raise many types
                    self._raise_reason(context, error)
                else:
                    self._raise_reason(context, None)
        if (store := context.get("task_state_store")) is not None:
            store.clear()  # or the task, cleared by a person, would find that its application has succeeded
        if self.outlets:
            announce(self, self.stream, context, rolled_back(self._run(context)))

    @contextmanager
    def _logged(self, context: Any, run: "Run") -> Iterator[None]:
        """Name the task in what its body does, log that it begins, and keep its lineage, also after a failure."""
        name_task(context)
        log_begin(self.log, self.step, run)
        try:
            yield
        finally:
            self._lineage = task_lineage(lambda: self._run(context), self.step)

    def _run(self, context: Any) -> "Run":
        """The run, with credentials of this moment: an application may take hours."""
        return open_run(self.stream, context["run_id"])

    def _raise_reason(self, context: Any, error: Exception | None) -> None:
        """Raise the failure that the application saved, or if it saved nothing, the operator's ``error``."""
        store = context.get("task_state_store")
        before = self._before if store is None else store.get(_BEFORE) or ""
        run = self._run(context)
        found = ended(self.step, run, before)
        if found is None and error is None:
            raise AirflowException(f"{self.step}: {no_outcome(self.step, run)}")
        if found is None:
            raise cast("Exception", error)
        log_end(self.log, self.step, run)
        if found.error is not None:
            # The operator's own error only repeats the end of the log.
            raise found.error from None
        if error is not None:
            self.log.warning("The application has saved its result, in spite of: %s", error)


def spark_step() -> type[SparkStep]:
    """The class that submits this deployment's steps.

    It is all that parsing a DAG wants to know of that. Raises ConfigError with what was expected.
    """
    given = plain_setting("spark_submit")
    try:
        way = checked_way(str(given.value))
    except ValueError as error:
        raise ConfigError("how steps are submitted", found=error, where=f"{_SETTING}, {given.source}") from None
    module, _, name = _OWN_CLASSES.get(way, way).partition(":")
    where = f"{_SETTING}={way}, {given.source}"
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as error:
        raise ConfigError(
            "the class that submits steps can't be imported",
            expected=f"class {name} in module {module}",
            found=error,
            where=where,
            hint=_install_hint(error, module),
        ) from error
    if not (isinstance(found, type) and issubclass(found, SparkStep) and found.prepare is not SparkStep.prepare):
        raise ConfigError(
            "not a class that submits steps",
            expected=f"a subclass of {SparkStep.__module__}.SparkStep with its own prepare",
            found=f"{module}.{name}" if found is not None else f"no {name} in module {module}",
            where=where,
        )
    return found


def spark_pool() -> str:
    """The pool that this deployment's Spark steps run in."""
    return str(plain_setting("spark_pool").value)


def _install_hint(error: ImportError, module: str) -> str:
    """What to install: the provider of a missing operator, or the module itself."""
    provider = "airflow.providers."
    missing = error.name or ""
    if module in _PROVIDERS:
        return f"Install the package {_PROVIDERS[module]}"
    if missing.startswith(provider):
        parts = missing.removeprefix(provider).split(".")
        name = "-".join(parts[:2] if parts[0] in {"apache", "cncf", "common", "microsoft"} else parts[:1])
        return f"Install the package apache-airflow-providers-{name}"
    return "Put its folder on the Python path of every process of Airflow"
