"""What keeps archive and tables small: compaction, expiry, and the deletion of what they replaced."""
