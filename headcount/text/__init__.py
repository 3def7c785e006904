"""Words, units and numbers as people read them, which diagnostics, progress and every view share."""
