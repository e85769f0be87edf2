"""Rebuild a run's days from the archive on its audit branch."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.rebuild.step import rebuild_run

if __name__ == "__main__":
    step_app("rebuild", rebuild_run, __doc__)
