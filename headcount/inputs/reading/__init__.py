"""What the inputs read: arrivals, traffic, variations, offers and deployments from what was given."""
