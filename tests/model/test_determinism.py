"""Equal input, machine and version give the same decision, schedule and program and, on one thread, the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("deciding.py")


def test_nothing_depends_on_the_process():
    """Two processes whose sets and hashes are in different orders."""
    processes = [
        subprocess.Popen(
            [sys.executable, PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "4242")
    ]
    outputs = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs[0][1][-2000:]
    first, second = (out.splitlines() for out, _ in outputs)
    assert first == second
    assert len(first) > 40 and sum(line.startswith("decision") for line in first) > 20
    assert {line.split()[0] for line in first} == {"decision", "refused", "schedule", "program", "result"}
