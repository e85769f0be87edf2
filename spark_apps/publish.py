"""Publish a run's audited days in one atomic step; where another run moved them meanwhile, rebuild them first."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.start_over import publish_or_start_over

if __name__ == "__main__":
    step_app("publish", publish_or_start_over, __doc__)
