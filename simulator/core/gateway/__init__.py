"""The gateway before the router, compiled: quotas of tenants, and the queue while the fleet is saturated."""
