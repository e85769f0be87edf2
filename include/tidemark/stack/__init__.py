"""The local stack: real Kafka and S3 servers as supervised child processes."""
