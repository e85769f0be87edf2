"""PySpark's daemon with the tasks' imports done: workers are forked from it, so they start at once.

Spark ends a worker after an idle minute, and the imports of a new one take two seconds. A stream with rarer batches
would pay that in every task of every batch.
"""

from importlib import import_module

from pyspark.daemon import manager

# PyArrow imports pandas when it converts a list to an array.
_IMPORTS = (
    "boto3",
    "pandas",
    "tidemark.definitions.stream",
    "tidemark.kafka.positions",
    "tidemark.s3",
    "tidemark.spark.records",
)

if __name__ == "__main__":
    for name in _IMPORTS:
        import_module(name)
    manager()  # type: ignore[no-untyped-call]  # it has no types
