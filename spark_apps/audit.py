"""Check the rebuilt days of a run before anybody can read them."""

from tidemark.reconcile.app import step_app
from tidemark.reconcile.audit.step import audit_run

if __name__ == "__main__":
    step_app("audit", audit_run, __doc__)
