"""Conversion of float models to integer models, by calibration data or from pairs of quantize and dequantize."""
