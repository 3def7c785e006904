"""How the constants that Headcount ships are made: kernel tables, then fits to measured runs and start-up logs."""
