"""Disaggregated prefill/decode, compiled: blocks that are kept to be read, and the reads."""
