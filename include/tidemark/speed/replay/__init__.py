"""Replay: dead letters, processed and delivered again, exactly once."""
