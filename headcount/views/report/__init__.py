"""An answer's JSON as a report: nothing is computed here, and an answer from a file gives the same report."""
