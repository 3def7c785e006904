"""The GPUs known by name, one file each."""
