"""Static checks of a program: bounds, hazards and tokens."""
