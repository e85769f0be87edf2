"""Compare the live topic with the days that a run has sealed."""

from tidemark.orchestration.delivery import delivery_run
from tidemark.reconcile.app import step_app

if __name__ == "__main__":
    step_app("delivery", delivery_run, __doc__)
