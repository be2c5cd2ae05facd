"""Configurations for machines with several storage levels."""
