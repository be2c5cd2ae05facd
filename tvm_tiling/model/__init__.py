"""Whole models: from Relax to an executable of scheduled operators."""
