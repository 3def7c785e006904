"""Lines and tables in a terminal and in a notebook."""
