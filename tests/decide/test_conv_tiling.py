"""The record of a convolution's decision, for any machine."""

from __future__ import annotations

import json

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.conv.conv_tiling import Candidate, ConvTiling
from tvm_tiling.decide.conv.cpu_conv import ConvAlgorithms, Source
from tvm_tiling.decide.conv.winograd import TOLERANCE
from tvm_tiling.decide.tiling import Reason

COMPARED = (Candidate("direct", 2.5e-4, "weights from L2"), Candidate("wfold", None, "64 channels"))
TILING = ConvTiling(
    form="direct",
    utilisation=0.5,
    candidates=COMPARED,
    tile_rows=2,
    copy_input=False,
    predicted_seconds=2.5e-4,
    reasons=(Reason("form", "direct", "the cheapest"), Reason("winograd", False, "disabled")),
)


def test_forms_that_were_compared_are_shown_with_their_time_or_refused():
    rows = [(row.name, row.value, row.why) for row in TILING.explained() if row.section == "compared"]
    assert rows == [("direct", "250 µs", "weights from L2"), ("wfold", "refused", "64 channels")]


def test_only_what_belongs_to_the_machine_is_shown():
    shown = {row.name: (row.section, row.value) for row in TILING.explained() if row.section != "compared"}
    assert shown == {
        "algorithm": ("algorithm", "direct"),
        "tile_rows": ("CPU", "2"),
        "copy_input": ("CPU", "no"),
        "utilisation": ("predicted", "50.0%"),
        "predicted_seconds": ("predicted", "250 µs"),
        "winograd": ("also", "no"),
    }
    assert TILING.explain().startswith("conv tiling\n  algorithm\n    algorithm              direct   the cheapest")


def test_json_has_every_field():
    plain = json.loads(TILING.to_json())
    assert plain["op"] == "conv" and plain["candidates"] == [list(candidate) for candidate in COMPARED]
    assert plain["pci"] is None and plain["reasons"][0] == ["form", "direct", "the cheapest"]
    assert TILING.why("form") == "the cheapest" and TILING.why("pci") == ""


@pytest.mark.parametrize("size, ci, co, kernel, padding", [(14, 576, 96, 1, 0), (28, 64, 64, 3, 1), (7, 20, 33, 5, 2)])
def test_candidates_are_left_out_by_a_true_lower_bound(size, ci, co, kernel, padding):
    workload = tt.ConvWorkload(n=1, h=size, w=size, ci=ci, co=co, kh=kernel, kw=kernel, padding=(padding,) * 4)
    hardware = tt.Hardware.load("zen4-server-8c")
    source = Source.of(workload)
    algorithms = ConvAlgorithms(workload, hardware, hardware.cpu, "ahead", source, True, TOLERANCE)
    choice = algorithms.direct_choice("direct")[1]
    priced = [(choice.model.cycles(config), config) for config in choice.configs()]
    assert all(choice.model.least(config) <= cycles for cycles, config in priced)
    assert choice.best() == min(priced, key=lambda found: found[0])
