"""W-fold: convolutions with few channels, on W-fold machines and on CPUs."""
