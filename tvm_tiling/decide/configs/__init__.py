"""Configurations as data: the choices of a decision, stored, varied and applied to other shapes."""
