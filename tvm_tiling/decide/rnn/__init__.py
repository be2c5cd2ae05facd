"""Recurrent layers: on page 04's engine and on CPUs."""
