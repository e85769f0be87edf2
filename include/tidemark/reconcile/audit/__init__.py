"""The audit step: a day's data-quality checks."""
