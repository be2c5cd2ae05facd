"""Configurations through several storage levels (page 02)."""
