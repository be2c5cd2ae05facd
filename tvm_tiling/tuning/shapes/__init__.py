"""The database of measured shapes (page 02)."""
