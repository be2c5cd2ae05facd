"""Schedule primitives shared by the accelerator schedules."""
