"""The engines that are simulated, a room for each."""
