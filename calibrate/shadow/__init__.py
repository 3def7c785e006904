"""What a running fleet measures, beside what is simulated for its load."""
