"""A fleet that changes while it serves: autoscaled, failing, updated; beside a fixed one."""
