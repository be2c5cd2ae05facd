"""Programs of the simulated accelerator: instructions, files and text."""
