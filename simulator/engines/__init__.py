"""What an engine is started with: arguments and defaults by release, and the scheduler's settings that follow."""
