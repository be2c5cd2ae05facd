"""Operators other than matrix multiplications and convolutions: element-wise operators, reductions, windows and
attention."""
