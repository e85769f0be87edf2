"""Spark helpers that the streams and the reconcile steps share."""
