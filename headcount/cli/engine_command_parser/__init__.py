"""Command lines of engines that are pasted as they are."""
