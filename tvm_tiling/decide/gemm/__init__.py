"""Matrix products: on CPUs (pages 01 and 03) and for machines with input buffers (page 01)."""
