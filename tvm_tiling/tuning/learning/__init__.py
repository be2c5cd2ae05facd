"""Cost models that learn corrections to the analytical predictions from measurements."""
