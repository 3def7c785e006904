"""What is compiled of the kernels, and how they are given the arrays."""
