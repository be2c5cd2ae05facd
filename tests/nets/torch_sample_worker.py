"""A process that judges samples: a job in JSON on each line of its input, {"source", "name", "dtype", "seed", "limit",
"way", "only"}; on each line of its output {"samples", "outcomes"}: how many there are, and the outcomes of those at the
places "only"."""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
from functools import lru_cache

# What libraries and kernels print goes to the standard errors.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


@lru_cache(maxsize=1)
def samples(source: str, name: str, dtype: str, seed: int, limit: int | None):
    """Those of a job; several jobs after one another are of the same ones."""
    return importlib.import_module(f"{source}_samples").samples(name, dtype, seed, limit)


def main() -> None:
    warnings.simplefilter("ignore")
    from torch_sample_judge import judged

    for line in sys.stdin:
        job = json.loads(line)
        found = samples(job["source"], job["name"], job["dtype"], job["seed"], job["limit"])
        wanted = [found[place] for place in job["only"]]
        answer = {"samples": len(found), "outcomes": judged(job["name"], wanted, job["way"])}
        print(json.dumps(answer), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
