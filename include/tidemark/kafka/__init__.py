"""Kafka's topics, positions and records, and the classification of offsets without an archived row."""
