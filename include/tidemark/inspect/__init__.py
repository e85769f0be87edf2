"""Looking: where a record is, and how a stream is."""
