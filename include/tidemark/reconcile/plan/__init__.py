"""The plan step: what a run reads, refills and accepts as lost."""
