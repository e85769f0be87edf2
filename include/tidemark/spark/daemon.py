"""PySpark's daemon with the imports of tasks done: a worker is forked from it, and starts at once.

Spark ends a worker that was idle for a minute, and each new one would import for two seconds first. So a stream whose
batches are rarer would pay them for every task of every batch.
"""

from importlib import import_module

from pyspark.daemon import manager

# PyArrow imports pandas as soon as it makes an array of a list.
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
