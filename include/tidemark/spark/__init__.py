"""Spark helpers shared by the streams and the batch steps."""
