"""The delivery audit: compares the live topic and the dead-letter topic with the archive."""
