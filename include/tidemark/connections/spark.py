"""The sizes and properties of Spark applications, and the properties that Tidemark refuses with the reason."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from tidemark.connections.shown import has_login, has_secret_word

Layer = Literal["archive", "speed", "batch"]
LAYERS: tuple[Layer, ...] = ("archive", "speed", "batch")
_MEMORY = r"^[1-9][0-9]*[kmgt]b?$"
_INSTANCES = 2
# A stream runs all the time, and must leave cores to others. A step's work ends.
_CORES: dict[Layer, int] = {"archive": 1, "speed": 1, "batch": 2}

# Properties that can't be given, and why. A star stands for any characters.
REFUSED = {
    ("spark.master",): "set `TIDEMARK_SPARK_MASTER`",
    ("spark.submit.deployMode",): "set `TIDEMARK_SPARK_SUBMIT`",
    ("spark.app.name",): "Tidemark names its applications",
    ("spark.driver.memory",): "set `driver_memory`",
    ("spark.executor.memory",): "set `executor_memory`",
    ("spark.executor.cores", "spark.executor.instances", "spark.cores.max"): "set `executor_cores` and `instances`",
    (
        "spark.dynamicAllocation.enabled",
        "spark.dynamicAllocation.maxExecutors",
        "spark.dynamicAllocation.shuffleTracking.enabled",
    ): "set `dynamic_allocation` and `instances`",
    ("spark.pyspark.python", "spark.pyspark.driver.python"): "set `executor_python`",
    ("spark.python.daemon.module",): "Tidemark sets it where its package is installed",
    ("spark.jars",): "put the jars into the folder of `TIDEMARK_JARS_DIR`",
    ("spark.executor.defaultJavaOptions",): "set `spark.executor.extraJavaOptions`",
    ("spark.sql.session.timeZone",): "Tidemark computes days in UTC, and converts them itself",
    ("spark.sql.extensions",): "Tidemark's tables need Iceberg's",
    ("spark.redaction.*", "spark.sql.redaction.*"): "it hides secrets in pages and event logs",
    ("spark.speculation",): "two attempts of one task would displace each other",
    (
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
    ): "a day would silently lack the rows of such a file",
    ("spark.hadoop.parquet.page.verify-checksum.enabled",): "it notices damaged objects",
    ("spark.sql.streaming.checkpoint*",): "the checkpoint says which records are archived",
}
# They name where a secret is, and hold none.
_PLACES = re.compile(r"\.(secrets|secretKeyRef|selector)\.|(\.f|F)ile$|[bB]itLength$|enableSecretsMount$")


def _properties(value: Any) -> Any:
    """Numbers and truth values as the texts that Spark wants."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: str(item).lower() if isinstance(item, bool) else str(item) if isinstance(item, int | float) else item
        for name, item in value.items()
    }


def _allowed(conf: dict[str, str]) -> dict[str, str]:
    for name, value in conf.items():
        if not name.startswith("spark."):
            raise ValueError(f"{name}: the name of a Spark property begins with 'spark.'")
        reason = next((text for names, text in REFUSED.items() if any(fnmatchcase(name, one) for one in names)), None)
        if reason is not None:
            raise ValueError(f"{name} can't be given: {reason.replace('`', '')}")
        if has_login(value) or (has_secret_word(name) and not _PLACES.search(name)):
            raise ValueError(
                f"{name} can't be given: a secret would stand on command lines; put it into spark-defaults.conf in the"
                " folder of SPARK_CONF_DIR"
            )
    return conf


class SparkSizes(BaseModel):
    """How large Spark applications are, and further properties of Spark."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    driver_memory: str | None = Field(
        default=None, pattern=_MEMORY, description="Memory of the driver. Without the key: `1g`.", examples=["2g"]
    )
    executor_memory: str | None = Field(
        default=None, pattern=_MEMORY, description="Memory of one executor. Without the key: `1g`.", examples=["4g"]
    )
    executor_cores: int | None = Field(
        default=None,
        ge=1,
        description="Cores of one executor. Without the key: 1 for a stream, 2 for a step of a reconcile run.",
        examples=[4],
    )
    instances: int | None = Field(
        default=None,
        ge=1,
        description="Executors of one application, the most of them with `dynamic_allocation`. Without the key: 2.",
        examples=[8],
    )
    dynamic_allocation: bool | None = Field(
        default=None,
        description="Whether Spark starts and ends executors as the work needs them. Without the key: `false`.",
        examples=[True],
    )
    executor_python: str | None = Field(
        default=None,
        description="Python on the executors: a path there. Without the key: the path of the driver's Python.",
        examples=["/opt/tidemark/bin/python"],
    )
    conf: Annotated[dict[str, str], BeforeValidator(_properties), AfterValidator(_allowed)] = Field(
        default={},
        description="Further properties of Spark. Those that Tidemark needs, and secrets, are refused.",
        examples=[{"spark.ui.enabled": "true"}],
    )

    def over(self, other: "SparkSizes") -> "SparkSizes":
        """These sizes, and the other ones where nothing is given here."""
        own = {name: value for name in SparkSizes.model_fields if (value := getattr(self, name)) is not None}
        below = {name: getattr(other, name) for name in SparkSizes.model_fields}
        return SparkSizes.model_construct(**{**below, **own, "conf": {**other.conf, **self.conf}})


DEFAULT_SIZES = SparkSizes()


class SparkSettings(SparkSizes):
    """The size of Spark applications. `archive`, `speed` and `batch` have the same keys, for one layer only."""

    archive: SparkSizes = DEFAULT_SIZES
    speed: SparkSizes = DEFAULT_SIZES
    batch: SparkSizes = DEFAULT_SIZES

    def of(self, layer: Layer) -> SparkSizes:
        """What holds for the applications of a layer."""
        sizes: SparkSizes = getattr(self, layer)
        return sizes.over(self)


def is_local(master: str) -> bool:
    """Whether the tasks run in the driver's own process."""
    return master.startswith("local")


def size_properties(sizes: SparkSizes, layer: Layer, master: str) -> dict[str, str]:
    """Spark's properties for an application of these sizes, ``conf`` included. A local one has no executors."""
    found = {"spark.driver.memory": sizes.driver_memory or "1g"}
    if not is_local(master):
        cores, instances = sizes.executor_cores or _CORES[layer], sizes.instances or _INSTANCES
        found |= {"spark.executor.memory": sizes.executor_memory or "1g", "spark.executor.cores": str(cores)}
        if sizes.dynamic_allocation:
            found |= {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.shuffleTracking.enabled": "true",
                "spark.dynamicAllocation.maxExecutors": str(instances),
            }
        else:
            found |= {"spark.executor.instances": str(instances)}
        if master.startswith("spark://"):
            # Without it an application takes every core of the cluster, and the next one waits until it ends.
            found["spark.cores.max"] = str(cores * instances)
    return found | sizes.conf
