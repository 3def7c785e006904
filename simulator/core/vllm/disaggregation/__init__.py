"""Prefill in one engine and decode in another, compiled: blocks that are kept to be read, and the reads."""
