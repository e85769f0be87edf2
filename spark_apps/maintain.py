"""Maintain a stream: stale uploads, old audit branches, expired snapshots, files of no snapshot, the ledger."""

from tidemark.maintenance.run import maintain_run
from tidemark.reconcile.app import step_app

if __name__ == "__main__":
    step_app("maintain", maintain_run, __doc__)
