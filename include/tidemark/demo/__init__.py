"""The demo: two days of real departures, damaged as life does it, and proven complete again."""
