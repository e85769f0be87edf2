"""Publish a run's audited days in one atomic step."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.publish import publish_run

if __name__ == "__main__":
    step_app("publish", publish_run, __doc__)
