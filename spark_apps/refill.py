"""Fetch the offsets a reconcile run's plan misses from Kafka into the archive."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.refill import refill_run

if __name__ == "__main__":
    step_app("refill", refill_run, __doc__)
