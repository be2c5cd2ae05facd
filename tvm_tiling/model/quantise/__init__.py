"""Float models made integer ones, by calibration data or from pairs of quantize and dequantize."""
