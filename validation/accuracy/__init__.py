"""How far simulated latencies and memory are from public measurements."""
