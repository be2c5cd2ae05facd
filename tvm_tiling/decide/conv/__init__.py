"""Convolutions: direct, as matrix multiplication, depthwise, Winograd, stride-fold and W-fold algorithms on CPUs;
blocks for a matrix engine."""
