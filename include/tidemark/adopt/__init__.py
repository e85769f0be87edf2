"""Import of what Kafka Connect's S3 sink wrote: its objects are read once and become objects of the archive."""
