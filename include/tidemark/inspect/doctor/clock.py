"""Compares this machine's clock with a server's."""

from tidemark.inspect.doctor.checkup import Checkup, Probe

# Days end, leases expire and alarms start by this machine's clock.
WARNING_S = 5.0
FAILED_S = 60.0
_HINT = "Synchronize the clocks of this machine and of the servers (chrony, NTP): days, leases and alarms follow them"


def clock_line(probe: Probe, server: str, there_s: float, before_s: float, after_s: float) -> Checkup:
    """The line about a server's time, which it took between two times of this machine; seconds since the epoch."""
    if before_s <= there_s <= after_s:
        difference = 0.0
    else:
        difference = there_s - before_s if there_s < before_s else there_s - after_s
    if abs(difference) < WARNING_S:
        return probe.ok(f"at most {max(abs(difference), after_s - before_s):.1f} s from {server}'s")
    side = "ahead of" if difference < 0 else "late, compared with"
    found = f"this machine's clock is {abs(difference):,.0f} s {side} {server}'s"
    return probe.warning(found, _HINT) if abs(difference) < FAILED_S else probe.failed(found, _HINT)
