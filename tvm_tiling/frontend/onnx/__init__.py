"""Import of ONNX files and models."""
