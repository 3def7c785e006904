"""Questions about a real engine's measurements: read them, fit step times to them, check answers against them."""
