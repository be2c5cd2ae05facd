"""A process that judges samples: a job in JSON on each line of its input, {"name", "dtype", "seed", "limit", "only"};
an answer, a list of [outcome, text], on each line of its output. "only": places of the samples to judge, or null."""

from __future__ import annotations

import json
import os
import sys
import warnings

# What libraries and kernels print goes to the standard errors.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def main() -> None:
    warnings.simplefilter("ignore")
    from opinfo_judge import judged
    from opinfo_samples import samples

    for line in sys.stdin:
        job = json.loads(line)
        found = samples(job["name"], job["dtype"], job["seed"], job["limit"])
        wanted = found if job["only"] is None else [found[place] for place in job["only"] if place < len(found)]
        outcomes = judged(job["name"], wanted)
        print(json.dumps({"samples": len(found), "outcomes": outcomes}), file=ANSWERS, flush=True)


if __name__ == "__main__":
    main()
