"""Benchmarks against other libraries, on shapes stored as data. Run from a checkout: python -m benchmarks.run.

Idle threads of every library spin before they sleep: OpenBLAS threads for 26 ms, TVM threads for about 100 ms. In a
paired benchmark they would occupy the cores that the other side needs. Every library is therefore configured, before it
is loaded, to put idle threads to sleep after about 1 ms: they are still awake for the next call of the same sample, and
asleep before the other side's turn.

With the variable TVM_NUM_THREADS set, every library gets that number of threads, as this package does.
"""

import os

from tvm_tiling.runtime.threads import limit_libraries

SPINNING = {
    "OPENBLAS_THREAD_TIMEOUT": "21",  # 2^21 cycles
    "GOMP_SPINCOUNT": "50000",  # PyTorch; iterations of one pause instruction
    "TVM_THREAD_POOL_SPIN_COUNT": "3000",  # calls of sched_yield
}

for _name, _value in SPINNING.items():
    os.environ.setdefault(_name, _value)
limit_libraries()


def spinning() -> dict[str, str]:
    """Return the settings in force, for the record. A variable that the user has set is not overridden."""
    return {name: os.environ[name] for name in SPINNING}
