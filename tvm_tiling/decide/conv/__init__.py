"""Convolutions: direct, as products, depthwise, Winograd, folded; in blocks for a matrix engine (pages 01, 03, 05)."""
