"""The local stack: Kafka and S3 servers as supervised child processes."""
