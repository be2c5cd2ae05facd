"""Run GEMMs whose operands all end at the end of accessible memory: an access beyond one is a segmentation fault.

Started as a program by test_guard_page.py; its arguments are a seed and the number of GEMMs.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys

import numpy as np
import products
from random_products import random_case

PROT_NONE = 0
ALIGNMENT = 64  # bytes; an operand whose size is not a multiple of it ends that much before the page does


class AtThePagesEnd(products.Guarded):
    """Return an array followed by inaccessible memory."""

    def place(self, size: int) -> tuple[np.ndarray, int]:
        pages = -(-size // mmap.PAGESIZE)
        # Kept alive by the array that is made of it.
        memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        raw = np.frombuffer(memory, np.uint8)
        end = raw.ctypes.data + pages * mmap.PAGESIZE
        refused = ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), mmap.PAGESIZE, PROT_NONE)
        assert refused == 0
        raw = raw[: pages * mmap.PAGESIZE]
        raw[:] = 0xFF
        return raw, (pages * mmap.PAGESIZE - size) // ALIGNMENT * ALIGNMENT


def main(seed: int, count: int) -> None:
    """Check `count` random GEMMs; with 0, read beyond an array instead."""
    if not count:
        array = AtThePagesEnd((16,), "float32").array
        ctypes.string_at(array.ctypes.data + array.nbytes, 1)
    products.Guarded = AtThePagesEnd
    # The edge of a resumed sum occurs in every run; few random GEMMs have one.
    products.check(products.Product(m=18, n=20, k=5000), form="normal")
    rng = random.Random(seed)
    for number in range(count):
        p, hardware, options = random_case(rng, most=80)
        print(p, options, flush=True)
        products.check(p, hardware, seed=number, **options)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
