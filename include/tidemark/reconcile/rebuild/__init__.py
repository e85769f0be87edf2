"""The rebuild step: the days' rows from the archive, on a branch of the table."""
