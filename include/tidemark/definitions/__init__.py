"""A stream's YAML: what it may say, and what is said where it is wrong."""
