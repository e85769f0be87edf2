"""Taking over what Kafka Connect's S3 sinks wrote."""
