"""A fleet that changes while it serves: autoscaled, failing, updated; compared with a fixed one."""
