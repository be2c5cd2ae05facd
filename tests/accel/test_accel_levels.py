"""Products on machines with several storage levels: results, bytes of every level, time against the prediction."""

from __future__ import annotations

import numpy as np
import pytest
from level_machines import levels
from operators import product, simulated

import tvm_tiling as tt
from tvm_tiling.accel.simulate import simulate

SIZES = [(64, 64, 64), (100, 90, 70), (37, 211, 129), (1, 50, 33), (50, 1, 333), (7, 9, 300), (131, 127, 1)]


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("size", [*SIZES, (256, 200, 512)], ids=str)
def test_int8_products_are_exact_and_every_level_reads_what_was_decided(count, size):
    m, n, k = size
    hardware = levels(count)
    _, _, program, inputs, result = simulated(product(m, n, k, "int8"), hardware)
    assert np.array_equal(result, inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32))
    decision = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), hardware)
    report = simulate(program)
    assert report.bytes == {"a": decision.load_a * m * k, "b": decision.load_b * n * k, "out": 4 * m * n}
    above = None
    for cut in decision.levels:
        # What goes into a level once goes to as many groups of instances as do not share the axis.
        use = {operand: report.memories[f"{cut.name}.{operand}"] for operand in ("a", "b", "out")}
        assert (use["a"].written, use["b"].written) == (cut.bytes_a * cut.across_n, cut.bytes_b * cut.across_m)
        assert (cut.bytes_a, cut.bytes_b) == (cut.load_a * m * k, cut.load_b * n * k)
        assert use["out"].read == cut.bytes_out == 4 * m * n
        source = {"a": "external", "b": "external"} if above is None else {o: f"{above.name}.{o}" for o in "ab"}
        if above is not None:  # each copy above is read once
            assert report.memories[source["a"]].read == cut.bytes_a * above.across_n
            assert report.memories[source["b"]].read == cut.bytes_b * above.across_m
        above = cut
    assert report.lower_bound <= report.cycles <= report.upper_bound
