"""Export of a compiled model as a C library, which runs without TVM and Python."""
