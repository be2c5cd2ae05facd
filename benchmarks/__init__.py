"""Speed compared with others, on shapes kept as data (page 10). Run from a checkout: python -m benchmarks.run.

Idle threads of every library spin for a while before they sleep: OpenBLAS for 26 ms, TVM for some 100 ms. In a pair
they would sit on the cores that the other side needs. So all are told, before they are loaded, to sleep after about
1 ms: long enough to be awake for the next call of a sample, and over before the other side's turn.
"""

import os

SPINNING = {
    "OPENBLAS_THREAD_TIMEOUT": "21",  # 2^21 cycles
    "GOMP_SPINCOUNT": "50000",  # PyTorch; iterations of one pause instruction
    "TVM_THREAD_POOL_SPIN_COUNT": "3000",  # calls of sched_yield
}

for _name, _value in SPINNING.items():
    os.environ.setdefault(_name, _value)


def spinning() -> dict[str, str]:
    """The settings in force, for the record: a variable that the user has set stays as it is."""
    return {name: os.environ[name] for name in SPINNING}
