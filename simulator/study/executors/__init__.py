"""Ways to run simulations side by side, one file each."""
