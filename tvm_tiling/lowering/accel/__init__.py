"""Schedule moves that accelerators share."""
