"""Recurrent layers on the column engine, and tasks as its threads (design page 04)."""
