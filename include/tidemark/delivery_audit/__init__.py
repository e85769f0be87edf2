"""The delivery audit: what the live and the dead-letter topic hold, against the archive."""
