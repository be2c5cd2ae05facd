"""The families of random cases, each a function that draws a case from a source of chance and checks it.

What a case is goes to `note` before anything is compiled, so that it is known of one that ends the process.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

for folder in ("numeric", "accel", "model"):  # whose references are used here
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

import random_products  # noqa: E402
from products import check as check_product  # noqa: E402
from random_convs import check_random_conv  # noqa: E402
from random_damage import check_random_damage  # noqa: E402
from random_graphs import check_random_graph  # noqa: E402
from random_recurrences import check_random_recurrence  # noqa: E402
from random_simulated import check_random_simulated  # noqa: E402

Note = Callable[[str], None]


def products(rng: random.Random, note: Note) -> None:
    """Products of every type, layout, form and epilogue, with gaps between rows, on one core and more."""
    p, hardware, options = random_products.random_case(rng, most=200)
    note(f"{p} {options} {hardware.cpu.cores} cores of {hardware.cpu.vector_bits} bits")
    check_product(p, hardware, seed=rng.randrange(1000), **options)


FAMILIES: dict[str, Callable[[random.Random, Note], None]] = {
    "products": products,
    "convolutions": check_random_conv,
    "recurrent": check_random_recurrence,
    "graphs": check_random_graph,
    "simulated": check_random_simulated,
    "damage": check_random_damage,
}
