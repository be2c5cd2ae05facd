"""Processes that end or fork while threads run a model: they end properly, and the children work."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MODEL = """
import multiprocessing, os, sys, threading, time
import numpy as np
from tvm import relax
import tvm_tiling as tt

def model(columns):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((64, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, relax.const(np.ones((64, columns), "float32"))))
            out = builder.emit_output(relax.op.nn.relu(y))
        builder.emit_func_output(out)
    return tt.compile(builder.finalize(), cache=False)

net, x = model(64), np.ones((64, 64), "float32")
want = net.run(x)
running = True

def keep_running():
    while running:
        net.run(x)

for _ in range(3):
    threading.Thread(target=keep_running, daemon=True).start()
"""
CHILDREN = """
def work(compiles):
    for _ in range(5):
        assert np.array_equal(net.run(x), want)
    if compiles:
        assert np.array_equal(model(48).run(x), want[:, :48])
        assert np.array_equal(tt.run_many([(net, x)] * 5)[4], want)

context, compiles = multiprocessing.get_context("fork"), int(sys.argv[2])
for number in range(int(sys.argv[1])):
    child = context.Process(target=work, args=(number < compiles,))
    child.start()
    child.join(60)
    assert not child.is_alive(), f"child {number} hangs"
    assert child.exitcode == 0, f"child {number} ended with {child.exitcode}"
running = False
print("right")
"""


def program(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_end_while_daemon_threads_run_a_model():
    done = program(MODEL + "time.sleep(0.05)\nprint('the end')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")


def test_the_end_by_an_error_while_daemon_threads_run_a_model():
    done = program(MODEL + "raise SystemExit(3)")
    assert (done.returncode, done.stderr) == (3, "")


def test_a_model_runs_at_the_end():
    """Exit handlers registered earlier run after the gate is closed, and may use models."""
    done = program(
        "import atexit\natexit.register(lambda: print(net.run(x)[0, 0]))\n" + MODEL + "time.sleep(0.05)\nprint('end')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n64.0\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_children_that_are_forked_while_threads_run_a_model():
    """A hundred of them run it, the first two compile one as well: TVM's pool has no threads in them."""
    done = program(MODEL + CHILDREN, 100, 2)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-2000:]
