"""The reconcile run: plan, refill, rebuild, audit, publish, seal, report."""
