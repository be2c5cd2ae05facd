"""Programs of the simulated accelerator: instructions, files, text (page 06)."""
