"""The guards of the product, by area. ``python -m tests.run_guards`` switches each off and expects a test to fail.

A guard that nobody notices needs a test. Name the fewest and cheapest tests: those that need neither servers nor Spark
first, then those that need no Spark.
"""

from tests.guards import (
    archive,
    batch,
    day_settings,
    definitions,
    maintenance,
    pages,
    planning,
    rewritten,
    security,
    speed,
    verify,
)
from tests.guards.guard import Guard

GUARDS: tuple[Guard, ...] = (
    *archive.GUARDS,
    *maintenance.GUARDS,
    *planning.GUARDS,
    *day_settings.GUARDS,
    *rewritten.GUARDS,
    *batch.GUARDS,
    *speed.GUARDS,
    *verify.GUARDS,
    *security.GUARDS,
    *definitions.GUARDS,
    *pages.GUARDS,
)
