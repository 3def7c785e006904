"""Our decisions beside the real engine's own."""
