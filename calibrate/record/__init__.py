"""Recording the steps of a real server."""
