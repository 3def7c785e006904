"""The errors that a workload's user can cause."""

from __future__ import annotations


class WorkloadError(ValueError):
    """A workload or one of its settings cannot be used: one line saying what was given and what is allowed."""


class TraceError(WorkloadError):
    """A trace or a request table breaks its format: one line naming the place, what was found, what is allowed."""
