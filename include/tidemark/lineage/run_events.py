"""One event of OpenLineage about a run: a plain value, and the package's own object made from it.

The package is imported only where events are sent: most deployments have no lineage tool.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, Self

from tidemark.lineage.datasets import Dataset, LineageJob

PARENT = "OPENLINEAGE_PARENT_ID"
ROOT = "OPENLINEAGE_ROOT_PARENT_ID"
PRODUCER = "urn:tidemark"
_SOURCE = "TIDEMARK"
State = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A run of a job that others refer to."""

    namespace: str
    name: str
    run_id: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The run in ``namespace/job/run-id``; None for another text. The namespace may have slashes itself."""
        parts = text.rsplit("/", 2)
        return cls(namespace=parts[0], name=parts[1], run_id=parts[2]) if len(parts) == 3 and all(parts) else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestors:
    """The run that has started this one, and the first of all of them."""

    parent: JobRun
    root: JobRun | None = None


def use_ancestors(properties: Mapping[str, str]) -> None:
    """Take the ids of the scheduler from an application's Spark properties, unless variables give them."""
    if PARENT in os.environ:
        return
    for variable, kind in ((PARENT, "parent"), (ROOT, "rootParent")):
        parts = [properties.get(f"spark.openlineage.{kind}{field}") for field in ("JobNamespace", "JobName", "RunId")]
        if None not in parts:
            os.environ[variable] = "/".join(map(str, parts))


def given_ancestors(variables: Mapping[str, str] = os.environ) -> Ancestors | None:
    """What the scheduler says about itself: Airflow's task, and its DAG's run."""
    parent = JobRun.parse(variables.get(PARENT, ""))
    return None if parent is None else Ancestors(parent=parent, root=JobRun.parse(variables.get(ROOT, "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEvent:
    """``tags`` are the run's. ``span`` is the time whose data the run is about: the first instant and the last."""

    state: State
    time: datetime
    run_id: str
    job: LineageJob
    ancestors: Ancestors | None = None
    error: str | None = None
    span: tuple[datetime, datetime] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


def to_openlineage(event: LineageEvent) -> Any:
    """The event as ``openlineage.client.event_v2.RunEvent``."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    return RunEvent(
        eventTime=event.time.isoformat(timespec="milliseconds"),
        producer=PRODUCER,
        eventType=RunState(event.state),
        run=Run(runId=event.run_id, facets=_run_facets(event)),
        job=Job(namespace=event.job.namespace, name=event.job.name, facets=_job_facets(event.job)),
        inputs=input_datasets(event.job.inputs),
        outputs=output_datasets(event.job.outputs),
    )


def input_datasets(items: Iterable[Dataset]) -> list[Any]:
    """The datasets as ``openlineage.client.event_v2.InputDataset``."""
    from openlineage.client.event_v2 import InputDataset

    return [
        InputDataset(namespace=item.namespace, name=item.name, facets=_facets(item), inputFacets=_read(item))
        for item in items
    ]


def output_datasets(items: Iterable[Dataset]) -> list[Any]:
    """The datasets as ``openlineage.client.event_v2.OutputDataset``."""
    from openlineage.client.event_v2 import OutputDataset

    return [
        OutputDataset(namespace=item.namespace, name=item.name, facets=_facets(item), outputFacets=_written(item))
        for item in items
    ]


def _installed(package: str) -> str:
    """A package's version. Where a submission has sent this one as a zip, it has none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _run_facets(event: LineageEvent) -> dict[str, Any]:
    from openlineage.client.facet_v2 import error_message_run, nominal_time_run, processing_engine_run, tags_run

    found: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=_installed("tidemark"),
            name="Tidemark",
            openlineageAdapterVersion=_installed("openlineage-python"),
            producer=PRODUCER,
        )
    }
    if event.ancestors is not None:
        found["parent"] = parent_facet(event.ancestors)
    if event.error is not None:
        found["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=event.error, programmingLanguage="PYTHON", producer=PRODUCER
        )
    if event.span is not None:
        start, end = (moment.isoformat() for moment in event.span)
        found["nominalTime"] = nominal_time_run.NominalTimeRunFacet(
            nominalStartTime=start, nominalEndTime=end, producer=PRODUCER
        )
    if event.tags:
        tags = [tags_run.TagsRunFacetFields(key=key, value=text, source=_SOURCE) for key, text in event.tags.items()]
        found["tags"] = tags_run.TagsRunFacet(tags=tags, producer=PRODUCER)
    return found


def parent_facet(ancestors: Ancestors) -> Any:
    """The facet that names the run that has started this one."""
    from openlineage.client.facet_v2 import parent_run

    root, parent = ancestors.root, ancestors.parent
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=parent.run_id),
        job=parent_run.Job(namespace=parent.namespace, name=parent.name),
        root=None
        if root is None
        else parent_run.Root(
            run=parent_run.RootRun(runId=root.run_id),
            job=parent_run.RootJob(namespace=root.namespace, name=root.name),
        ),
        producer=PRODUCER,
    )


def _job_facets(job: LineageJob) -> dict[str, Any]:
    from openlineage.client.facet_v2 import documentation_job, job_type_job

    return {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="STREAMING" if job.continuous else "BATCH",
            integration=_SOURCE,
            jobType="JOB",
            producer=PRODUCER,
        ),
        "documentation": documentation_job.DocumentationJobFacet(description=job.about, producer=PRODUCER),
    }


def _facets(item: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import (
        catalog_dataset,
        dataset_type_dataset,
        dataset_version_dataset,
        datasource_dataset,
        documentation_dataset,
        schema_dataset,
        symlinks_dataset,
    )

    found: dict[str, Any] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(
            name=item.namespace, uri=item.namespace, producer=PRODUCER
        ),
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=item.kind, producer=PRODUCER),
        "documentation": documentation_dataset.DocumentationDatasetFacet(description=item.about, producer=PRODUCER),
    }
    if item.columns:
        columns = [schema_dataset.SchemaDatasetFacetFields(name=it.name, type=it.type) for it in item.columns]
        found["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns, producer=PRODUCER)
    if item.version is not None:
        found["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=item.version, producer=PRODUCER
        )
    if item.symlink is not None:
        namespace, name = item.symlink
        identifier = symlinks_dataset.Identifier(namespace=namespace, name=name, type="TABLE")
        found["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier], producer=PRODUCER)
    if item.catalog is not None:
        found["catalog"] = catalog_dataset.CatalogDatasetFacet(**item.catalog, producer=PRODUCER)
    return found


def _read(item: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as quality
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    found: dict[str, Any] = {}
    if item.rows is not None:
        found["inputStatistics"] = statistics.InputStatisticsInputDatasetFacet(
            rowCount=item.rows, fileCount=item.files, producer=PRODUCER
        )
    if item.checks:
        assertions = [
            quality.Assertion(
                assertion=check.assertion,
                success=check.success,
                column=check.column,
                severity="error" if check.blocks else "warn",
            )
            for check in item.checks
        ]
        found["dataQualityAssertions"] = quality.DataQualityAssertionsDatasetFacet(
            assertions=assertions, producer=PRODUCER
        )
    return found


def _written(item: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    if item.rows is None:
        return {}
    return {
        "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=item.rows, fileCount=item.files, producer=PRODUCER
        )
    }
