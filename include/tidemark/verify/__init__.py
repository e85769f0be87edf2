"""A sealed day's proof, derived anew without Spark, the plan, the ledger or the seal's figures."""
