"""What a report shows beyond a summary, as the data that its sections draw; nothing is simulated here."""
