"""Tidemark: Kafka topics as provably complete days."""
