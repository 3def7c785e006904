"""What a report shows beyond a result's own figures: bounded in size, simulated only when a report is asked for."""
