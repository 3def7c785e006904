"""What questions about many deployments share: candidates, screening, ranking, what a change gains."""
