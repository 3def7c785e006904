"""Worked examples of widely read memory guides, recomputed by this tool's own code."""
