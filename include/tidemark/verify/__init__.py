"""Recompute a sealed day's proof, without Spark, the plan, the ledger or the seal's figures."""
