"""Types that a float32 model is computed in: half precision, 8 bits, and the choice between them."""
