"""Hypothesis for the pure core: no deadline per case, as the machines are shared and noisy."""

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
