"""The archive stream: Kafka to S3, every record once, whole objects only."""
