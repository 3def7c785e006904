"""The cheapest fleet for so many users: every layout screened by its estimate, the cheapest ones simulated."""
