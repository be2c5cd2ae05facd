"""Speed compared with others, on shapes kept as data (page 10). Run from a checkout: python -m benchmarks.run."""
