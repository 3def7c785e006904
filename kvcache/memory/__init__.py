"""The memory budget of an engine, its interval, and what would make a model fit."""
