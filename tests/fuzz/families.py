"""The families of random cases, each a function that draws a case from a source of randomness."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

for folder in ("numeric", "accel", "model"):  # whose references are used here
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

import random_products  # noqa: E402
from case import Case  # noqa: E402
from products import check as check_product  # noqa: E402
from random_convs import random_conv  # noqa: E402
from random_coordinates import random_coordinates  # noqa: E402
from random_damage import random_damage  # noqa: E402
from random_graphs import random_graph  # noqa: E402
from random_indices import random_indices  # noqa: E402
from random_integers import random_integers  # noqa: E402
from random_recurrences import random_recurrence  # noqa: E402
from random_simulated import random_simulated  # noqa: E402
from random_values import random_value  # noqa: E402


def random_product(rng: random.Random) -> Case:
    """A matrix multiplication of any type, layout, kernel variant and epilogue, with gaps between rows, on one core or
    more."""
    p, hardware, options = random_products.random_case(rng, most=200)
    seed = rng.randrange(1000)
    return Case(
        f"{p} {options} {hardware.cpu.cores} cores of {hardware.cpu.vector_bits} bits",
        lambda: check_product(p, hardware, seed=seed, **options),
    )


FAMILIES: dict[str, Callable[[random.Random], Case]] = {
    "products": random_product,
    "convolutions": random_conv,
    "coordinates": random_coordinates,
    "recurrent": random_recurrence,
    "graphs": random_graph,
    "indices": random_indices,
    "integers": random_integers,
    "simulated": random_simulated,
    "damage": random_damage,
    "values": random_value,
}
# Run in a separate process: an access outside of a tensor ends it, and so does a trapping division.
WALLED = ("indices", "coordinates", "integers")
