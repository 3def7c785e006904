"""Trace formats, one file each."""
