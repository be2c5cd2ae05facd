"""ONNX files and models."""
