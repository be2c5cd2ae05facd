"""Whole-model compilation: from Relax to an executable of scheduled operators."""
