"""The current view: the published table, and the archived records that are not in it."""
