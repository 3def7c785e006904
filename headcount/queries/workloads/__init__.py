"""Questions about a workload alone: no model, no GPU."""
