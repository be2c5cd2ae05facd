"""Recurrent layers on the column engine, and tasks as its threads (page 04)."""
