"""How old an object must be before maintenance may touch it."""

from datetime import timedelta

# What was committed just now may still be read, or compared, as it is.
MIN_AGE = timedelta(days=1)


# A run that was planned before a compaction reads what it was planned with.
KEPT_FOR = timedelta(days=7)
