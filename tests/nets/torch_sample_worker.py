"""A process that checks samples: a job in JSON on each line of its input, an answer on each line of its output.

{"source", "seed", "limit", "count": [name, type]}: the number of samples; {"source", "seed", "limit", "way", "samples":
[[name, type, place], ...]}: the outcome of each, None if PyTorch itself refuses it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import warnings

# Output of libraries and kernels goes to standard error.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


@functools.lru_cache(maxsize=32)
def samples(source: str, name: str, dtype: str, seed: int, limit: int | None):
    """Samples of a name and type; consecutive jobs usually use the same ones."""
    return importlib.import_module(f"{source}_samples").samples(name, dtype, seed, limit)


def operators_are_listed_once() -> None:
    """PyTorch lists the composite operators of all libraries at each export, in 0.2 s; here none is added."""
    import torch._export.utils as listing

    listing._collect_all_valid_cia_ops = functools.cache(listing._collect_all_valid_cia_ops)


def main() -> None:
    warnings.simplefilter("ignore")
    from torch_sample_judge import judged

    operators_are_listed_once()
    for line in sys.stdin:
        job = json.loads(line)
        source, given = job["source"], (job["seed"], job["limit"])
        if "count" in job:
            answer = len(samples(source, *job["count"], *given))
        else:
            wanted = [samples(source, name, dtype, *given)[place] for name, dtype, place in job["samples"]]
            answer = judged(wanted, job["way"])
        print(json.dumps(answer), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
