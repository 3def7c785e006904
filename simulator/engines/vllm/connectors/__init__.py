"""What vLLM does for KV that comes from elsewhere: any connector's scheduler, CPU memory, another engine."""
