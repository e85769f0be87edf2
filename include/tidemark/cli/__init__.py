"""The command line ``tidemark``."""
