"""The Spark application of a step: what submits it needs to know, and how it ended."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from tidemark.connections.spark import SparkSizes, size_properties
from tidemark.core import errors
from tidemark.core.errors import IncompleteError, QualityError
from tidemark.core.manifest import digest
from tidemark.core.outcome import RunStep
from tidemark.orchestration.tasks import announced
from tidemark.reconcile.results import AUDIT, ROLLBACK
from tidemark_airflow.lineage import spark_properties

if TYPE_CHECKING:
    from tidemark.run import Run
    from tidemark.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """The application of a step, for those who submit it. Only ``settings`` hold secrets.

    ``file`` is in the folder ``spark_apps``.
    """

    name: str
    file: str
    arguments: tuple[str, ...]
    sizes: SparkSizes
    settings: "Settings" = field(repr=False)

    def conf(self, master: str) -> dict[str, str]:
        """Spark's properties for an application of these sizes on the master. None is secret."""
        return size_properties(self.sizes, "batch", master) | spark_properties()

    @property
    def python(self) -> str:
        """Python where the application runs."""
        return self.sizes.executor_python or sys.executable


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an application ended: its ``error`` if it failed, None else."""

    error: Exception | None = None


def spark_job(step: str, run: "Run", asked: Mapping[str, Any]) -> SparkJob:
    """The application of a step, with the form's values that it is ``asked`` for."""
    stream, form = run.stream.name, [f"--{name}={value}" for name, value in asked.items()]
    return SparkJob(
        name=f"tidemark-{step}-{stream}",
        file=f"{step}.py",
        arguments=("--stream", stream, "--run", run.name, *form),
        sizes=run.spark_sizes,
        settings=run.settings,
    )


def saved(step: str, run: "Run") -> str:
    """The digest of a step's saved outcome, empty where there is none."""
    body = run.store.get(run.key(step))
    return "" if body is None else digest(body)


def ended(step: str, run: "Run", before: str) -> Ended | None:
    """How the application says that it ended; None where it saved nothing.

    ``before`` is what was ``saved`` when it was submitted. An outcome that is still the same is an earlier attempt's:
    a killed application saves none.
    """
    if saved(step, run) == before:
        return None
    found = run.outcome(RunStep(step, dict[str, Any]))
    if found is None:
        return None
    if found.status != "failed":
        return Ended()
    kind = getattr(errors, found.kind or "", AirflowException)
    if step == AUDIT.name and kind is QualityError:
        audit = run.outcome(AUDIT)
        if audit is None or audit.result is None or not audit.result.rows_failed:
            kind = AirflowException  # a check could not be made: another audit may succeed
    return Ended(error=kind(f"{step}: {found.error}"))


def no_outcome(step: str, run: "Run") -> str:
    """The error of an application that has ended well and saved no result."""
    return str(
        IncompleteError(
            "the application has ended and saved no result",
            expected="a new one",
            where=f"s3://{run.store.bucket}/{run.key(step)}",
            hint="See its log. It must run with this deployment's settings",
        )
    )


def rolled_back(run: "Run") -> dict[str, Any]:
    """The day that a rollback has made a version of, as step ``seal`` reports its days; and the version of its rows."""
    from tidemark.tables.seals import read_seal

    done = run.require(ROLLBACK)
    seal = read_seal(run.store, run.layout, done.sealed.day, done.sealed.version)
    if seal is None:
        raise IncompleteError("the seal of a rollback is missing", expected=done.sealed.key, where=run.store.bucket)
    return {**announced([seal]), "rolled_back_to": done.rolled_back_to}
