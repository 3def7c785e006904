"""Worked examples of widely read memory guides, recomputed with Headcount's own functions."""
