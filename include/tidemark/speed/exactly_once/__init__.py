"""Exactly-once delivery: transactions per batch and log, and the marker that says how far they came."""
