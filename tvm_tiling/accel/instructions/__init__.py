"""The instruction set: one file of rows for each family of instructions, and the table of all of them."""
