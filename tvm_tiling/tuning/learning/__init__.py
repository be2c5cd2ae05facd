"""What measurements teach about the formulas' predictions."""
