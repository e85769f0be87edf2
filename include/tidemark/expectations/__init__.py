"""Expectations of Great Expectations, on Spark, for records of Kafka in a table.

Importing the package registers them: a suite may then hold them beside the library's own. It needs Great Expectations
and PySpark, and nothing of a deployment.
"""

from tidemark.expectations.kafka import (
    ExpectKafkaRecordsToBeUnique,
    ExpectLiveTopicToAgreeWithTable,
    ExpectOffsetsToBeComplete,
    live_records,
)
from tidemark.expectations.rows import (
    ExpectColumnValuesToExistInOtherTable,
    ExpectKeyToBeUnique,
    ExpectRowsToBeConserved,
)

__all__ = [
    "ExpectColumnValuesToExistInOtherTable",
    "ExpectKafkaRecordsToBeUnique",
    "ExpectKeyToBeUnique",
    "ExpectLiveTopicToAgreeWithTable",
    "ExpectOffsetsToBeComplete",
    "ExpectRowsToBeConserved",
    "live_records",
]
