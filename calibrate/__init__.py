"""What real vLLM did: the only place that runs it, reads it or fits to it."""
