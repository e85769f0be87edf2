"""Kafka's topics, positions and records, and the classification of offsets without an archived row.

Functions raise ServiceError if Kafka refuses, or does not answer in time (most wait 20 s).
"""
