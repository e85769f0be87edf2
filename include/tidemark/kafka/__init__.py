"""What Kafka knows: topics, positions, a log's records, and what became of offsets that have none."""
