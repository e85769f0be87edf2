"""Metrics by OpenTelemetry: of streams while they run, and of steps when they end."""
