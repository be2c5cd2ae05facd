"""Configurations as data: what decisions settle, kept, changed and put to use for other shapes (page 02)."""
