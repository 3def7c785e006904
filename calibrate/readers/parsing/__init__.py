"""What readers share: files, rows, metrics, start-up logs."""
