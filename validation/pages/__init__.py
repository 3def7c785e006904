"""The tables of docs pages that are made from the code or from stored results."""
