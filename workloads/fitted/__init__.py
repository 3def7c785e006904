"""Generative models of traces: fitted, drawn from, kept in small files."""

from typing import Final

MARK: Final = "fitted_trace"
"""The table that tells a model's file from a population's."""
