"""A plan's cheapest fleet as manifests for Kubernetes, docker compose and charts, with Prometheus alerts."""
