"""What happens: the step loop, fleets, latency models, statistics, the capacity search."""
