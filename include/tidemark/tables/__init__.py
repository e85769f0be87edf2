"""Everything that touches Iceberg: tables, snapshots, their summaries, schema evolution, seals, versions."""
