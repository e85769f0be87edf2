"""The report step: what a run did, for people."""
