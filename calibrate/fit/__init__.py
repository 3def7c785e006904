"""From measurements to a latency profile."""
