"""What a workload is like in figures: rates, bursts, lengths, sessions, reuse of prefixes."""
