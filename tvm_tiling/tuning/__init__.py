"""Measured cuts: kept by shape, searched for, and reused (pages 02 and 07)."""
