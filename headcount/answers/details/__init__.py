"""What a report shows beyond an answer's own figures: bounded in size, and worked out only when it is asked for."""
