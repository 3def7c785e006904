"""What arrives: requests, sessions, populations, traces."""
