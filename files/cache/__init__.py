"""What is kept on disk from run to run, where nobody but its user can change it."""
