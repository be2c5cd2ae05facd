"""The database of measured shapes."""
