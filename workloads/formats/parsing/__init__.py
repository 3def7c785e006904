"""What the trace formats share: rows of CSV and of JSON lines, and the table that they become."""
