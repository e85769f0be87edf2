"""OpenLineage: which job of a stream reads and writes which dataset, and the events that say so."""
