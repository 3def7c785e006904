"""Autoscalers that are shipped, one file each: how many replicas they want of what they observe."""
