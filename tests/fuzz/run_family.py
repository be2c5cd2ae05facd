"""Check random cases of a family; hypothesis shrinks failures.

A separate program: python run_family.py FAMILY SEED CASES. Its last line of output names the current case, so that one
that ends the process is known; the same seed draws the same cases.
"""

from __future__ import annotations

import random
import sys

from families import FAMILIES
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

FEWEST = 10  # to be drawn at a time: the first is always the smallest case


def run(family: str, number: int, cases: int, show: bool = False) -> None:
    """Check at least `count` different cases; raise for the smallest wrong one.

    Half of the cases that hypothesis draws for these generators are repetitions, so that it is called until there are
    enough.
    """
    right: set[str] = set()

    def examine(rng: random.Random) -> None:
        case = FAMILIES[family](rng)
        if case.name in right:
            return
        if show:
            print(case.name, flush=True)
        try:
            case.check()
        except BaseException as error:
            error.add_note(f"{family}, seed {number}: {case.name}") if sys.version_info >= (3, 11) else None
            raise
        right.add(case.name)

    asked = 0
    while len(right) < cases:
        rules = settings(
            max_examples=max(FEWEST, cases - len(right)),
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        )
        seed(f"{number} {asked}")(rules(given(rng=st.randoms(use_true_random=False))(examine)))()
        asked += 1


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), show=True)
