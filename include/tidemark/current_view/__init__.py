"""The live view: the published table, and what the archive holds that is not in it."""
