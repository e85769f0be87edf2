"""Rebuild a run's days from the archive on its audit branch, and check them there in the same session."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.rebuild_and_audit import rebuild_and_audit

if __name__ == "__main__":
    step_app("rebuild", rebuild_and_audit, __doc__)
