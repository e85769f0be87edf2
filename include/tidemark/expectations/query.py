"""The base of Tidemark's expectations: a query in Spark SQL that finds what is unexpected.

The library's own ``UnexpectedRowsExpectation`` runs two jobs and keeps no example. This one counts in one job, and
reads examples only where there is something to show.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.renderer_configuration import RendererConfiguration
from great_expectations.validator.metric_configuration import MetricConfiguration
from great_expectations.validator.validator import ValidationDependencies

EXAMPLES_MAX = 5
_METRIC = "tidemark.unexpected"


class UnexpectedOfQuery(TableMetricProvider):
    """A row of counts, and the first unexpected rows if ``unexpected_count`` is not 0."""

    metric_name = _METRIC
    value_keys = ("counts", "unexpected")

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805 - the library makes a class method of it
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],  # noqa: ARG002 - the library gives it
        runtime_configuration: dict[str, Any],  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        rows, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        spark = rows.sparkSession
        counts = spark.sql(metric_value_kwargs["counts"], batch=rows).collect()[0].asDict()
        examples = []
        if counts["unexpected_count"]:
            examples = spark.sql(metric_value_kwargs["unexpected"], batch=rows).limit(EXAMPLES_MAX).collect()
        return {"counts": counts, "examples": [row.asDict() for row in examples]}


class SparkQueryExpectation(BatchExpectation, ABC):
    """Succeeds if the query of ``unexpected`` finds no row of the batch, which it names ``{batch}``."""

    sentence: ClassVar[str]
    metric_dependencies: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def unexpected(self) -> str:
        """The query for unexpected rows."""

    def counts(self) -> str:
        """A query for one row of counts, of which ``unexpected_count`` is one."""
        return f"SELECT count(*) AS unexpected_count FROM ({self.unexpected()})"  # noqa: S608 - see names and texts

    def succeeds(self, counts: dict[str, Any]) -> bool:
        return bool(counts["unexpected_count"] == 0)

    def result(self, counts: dict[str, Any]) -> dict[str, Any]:
        """What the result shows of the counts."""
        number = counts["unexpected_count"]
        text = f"{number:,} unexpected {'row' if number == 1 else 'rows'}" if number else "no unexpected row"
        return {"observed_value": text, "unexpected_count": number}

    def get_validation_dependencies(self, *arguments: Any, **named: Any) -> ValidationDependencies:
        found = super().get_validation_dependencies(*arguments, **named)
        queries = {"counts": self.counts(), "unexpected": self.unexpected()}
        metric = MetricConfiguration(
            metric_name=_METRIC, metric_domain_kwargs={"batch_id": self.batch_id}, metric_value_kwargs=queries
        )
        found.set_metric_configuration(_METRIC, metric)
        return found

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,  # noqa: ARG002 - the library gives it
        execution_engine: Any = None,  # noqa: ARG002 - as above
    ) -> dict[str, Any]:
        found = metrics[_METRIC]
        result = {**self.result(found["counts"]), "partial_unexpected_list": found["examples"]}
        return {"success": self.succeeds(found["counts"]), "result": result}

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration[Any]) -> RendererConfiguration[Any]:
        renderer_configuration.template_str = cls.sentence
        return renderer_configuration


def name(column: str) -> str:
    """A column's name in a query."""
    return f"`{_formatted(column.replace('`', '``'))}`"


def text(value: str) -> str:
    """A text in a query."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{_formatted(escaped)}'"


def _formatted(part: str) -> str:
    """Braces stand for the batch in a query."""
    return part.replace("{", "{{").replace("}", "}}")
