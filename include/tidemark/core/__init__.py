"""Pure values and functions: offsets, manifests, plans, seals. Standard library only; no client, clock or logger."""
