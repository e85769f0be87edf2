"""The speed layer: every record of the topic, transformed, on the live topic within seconds."""
