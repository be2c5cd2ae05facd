"""W-fold: convolutions of few channels (page 05), on its machine and on CPUs."""
