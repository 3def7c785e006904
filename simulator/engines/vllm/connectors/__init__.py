"""What vLLM does for KV that comes from elsewhere: the scheduler of any connector, and reads from another engine."""
