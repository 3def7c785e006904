"""vLLM's arguments under its own names, and the settings that its V1 scheduler goes by."""
