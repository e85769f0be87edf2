"""The demo: two days of real departures, damaged in realistic ways, and proven complete."""
