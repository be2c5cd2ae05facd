"""PyTorch programs and modules."""
