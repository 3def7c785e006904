"""One file for each router: what it sees, its compiled form, its reference implementation."""
