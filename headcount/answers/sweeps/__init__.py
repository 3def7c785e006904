"""Answers to one question asked in many ways: layouts side by side, grids, what a change gains."""
