"""From loads to an answer: replications, the search for the capacity, its interval, the bottleneck."""
