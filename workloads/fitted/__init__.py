"""Generative models of traces: fitted, drawn from, kept in small files."""
