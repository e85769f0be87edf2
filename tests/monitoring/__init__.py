"""Tests of the metrics for Prometheus, the alert rules, their pages, and the dashboard."""
