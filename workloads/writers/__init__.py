"""The formats that traces are written in, one file each."""
