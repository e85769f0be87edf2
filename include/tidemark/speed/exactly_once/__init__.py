"""Exactly-once delivery: transactions per batch and log, and a marker for the next offset to deliver."""
