"""Recurrent layers, on the column engine and on CPUs."""
