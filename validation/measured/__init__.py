"""What others measured on real servers, as runs that Headcount can simulate."""
