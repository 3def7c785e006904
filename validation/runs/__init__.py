"""Runs that others measured on their servers, each with where it comes from, and what they have to look like."""
