"""Check so many random cases of a family; hypothesis shrinks what fails.

A program of its own: python run_family.py FAMILY SEED CASES. Its last line of output names the case it was at, so that
one which ends the process is known; the same seed draws the same cases. No case is counted twice: hypothesis likes to
vary what it drew before, and half of what it makes of these generators that way is the same case again.
"""

from __future__ import annotations

import random
import sys

from families import FAMILIES
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st


def run(family: str, number: int, cases: int, show: bool = False) -> None:
    """Raise for the smallest case found that is wrong."""
    right: set[str] = set()

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(rng=st.randoms(use_true_random=False))
    def cases_of(rng: random.Random) -> None:
        described: list[str] = []

        def note(text: str) -> None:
            described.append(text)
            if described[0] in right:
                reject()
            if show:
                print(text, flush=True)

        try:
            FAMILIES[family](rng, note)
        except BaseException as error:
            error.add_note(f"{family}, seed {number}: {'; '.join(described)}") if sys.version_info >= (3, 11) else None
            raise
        right.update(described[:1])

    cases_of()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), show=True)
