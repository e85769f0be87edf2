"""Roll a day back: its rows become those of an earlier version, as a new version."""

from datetime import date

from tidemark.reconcile.app import step_app
from tidemark.reconcile.rollback import rollback_day

if __name__ == "__main__":
    step_app("rollback", rollback_day, __doc__, {"day": date.fromisoformat, "version": int})
