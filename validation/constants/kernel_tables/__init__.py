"""Which constants of the step-time terms measured kernel times ask for."""
