"""The archive's index: segments of manifests, and their history as arrays."""
