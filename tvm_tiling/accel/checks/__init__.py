"""What can be told of a program without running it: bounds, hazards, tokens (page 06)."""
