"""Data objects: how rows become one, and how it is read again, without Spark and never whole."""
