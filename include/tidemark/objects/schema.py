"""The columns of a data object's rows: tidemark.spark.records.ARCHIVE_SCHEMA as an Arrow schema."""

import pyarrow as pa

# Kafka's own number for a timestamp of unknown type. Imported rows have it: their bytes may differ from Kafka's record.
NO_TIMESTAMP_TYPE = -1
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
        ("event_time", pa.timestamp("us", tz="UTC")),
    ]
)
