"""How old an object must be before maintenance may touch it."""

from datetime import timedelta

# Younger objects may still be read or compared by running work.
MIN_AGE = timedelta(days=1)

# Replaced objects are kept for runs that were planned before the compaction.
KEPT_FOR = timedelta(days=7)
