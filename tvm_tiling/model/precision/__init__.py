"""Types in which a float32 model is computed: half precision, 8 bits, and the choice between them."""
