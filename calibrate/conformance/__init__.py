"""Our decisions, blocks and bytes beside the real engine's own."""
