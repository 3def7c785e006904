"""One question asked in many ways: what is screened, what is simulated, how two of them compare."""
