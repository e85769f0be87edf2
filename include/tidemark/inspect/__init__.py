"""Read-only views of a stream: where a record is, and how healthy each layer is."""
