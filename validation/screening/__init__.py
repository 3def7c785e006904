"""How near the estimate of a capacity comes to the search by simulation."""
