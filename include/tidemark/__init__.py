"""Tidemark: Kafka topics as provably complete days."""

__version__ = "0.1.0"
