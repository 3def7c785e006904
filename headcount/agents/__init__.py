"""Headcount as the tools of an agent."""
