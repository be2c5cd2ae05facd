"""Loops with a nonzero start or a step above 1, with bounds of inner loops that depend on them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script import tirx as T  # noqa: N812

from tvm_tiling.model.kernels import Kind, kernels_for
from tvm_tiling.model.link import link_objects
from tvm_tiling.model.loops_from_zero import loops_from_zero
from tvm_tiling.schedule import this_cpu
from tvm_tiling.temporary import temporary_folder

N = 7


@T.prim_func(s_tir=True)
def triangles(visits: T.Buffer((N, N, N), "int32")):
    for k in range(N):
        for j in range(k + 1, N):
            for i in range(j, N):
                visits[k, j, i] = visits[k, j, i] + 1


@T.prim_func(s_tir=True)
def steps(visits: T.Buffer((N, N, N), "int32")):
    for k in T.serial(1, N, step=2):
        for j in T.serial(k, N, step=3):
            for i in range(j, N):
                visits[k, j, i] = visits[k, j, i] + 1


def visited(ranges):
    found = np.zeros((N, N, N), "int32")
    for k in ranges[0]():
        for j in ranges[1](k):
            for i in ranges[2](j):
                found[k, j, i] += 1
    return found


CASES = {
    "triangles": (triangles, (lambda: range(N), lambda k: range(k + 1, N), lambda j: range(j, N))),
    "steps": (steps, (lambda: range(1, N, 2), lambda k: range(k, N, 3), lambda j: range(j, N))),
}


@pytest.mark.parametrize("name", CASES)
def test_inner_loops_start_where_outer_ones_are(name):
    function, ranges = CASES[name]
    with kernels_for(this_cpu()) as kernels, temporary_folder() as folder:
        objects = kernels.objects({"main": function}, lambda _: Kind.SCHEDULED)
        library = link_objects(objects, folder).module
        counts = tvm.runtime.tensor(np.zeros((N, N, N), "int32"))
        library["main"](counts)
        np.testing.assert_array_equal(counts.numpy(), visited(ranges))


def test_loops_from_zero_stay_as_they_are():
    moved = loops_from_zero(triangles)
    assert loops_from_zero(moved).same_as(moved)
