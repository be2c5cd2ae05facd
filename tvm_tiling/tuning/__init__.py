"""Tuning: configurations are searched for, measured, stored by shape and reused."""
