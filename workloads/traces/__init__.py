"""Recorded loads: files in many formats, read as requests."""
