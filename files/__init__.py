"""What comes in from outside and what goes out: files, things found by name, limits, one error for each mistake."""
