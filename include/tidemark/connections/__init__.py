"""How each client reaches Kafka, S3 and the catalog."""
