"""A compiled model as a C library: no TVM and no Python where it runs."""
