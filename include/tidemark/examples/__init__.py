"""Streams that show what can be built on the live topic; the platform does not know them."""
