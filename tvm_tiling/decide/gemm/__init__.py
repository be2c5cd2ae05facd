"""Matrix multiplications: on CPUs, and on machines with input buffers."""
