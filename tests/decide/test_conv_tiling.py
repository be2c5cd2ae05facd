"""The record of a convolution's decision, for any machine."""

from __future__ import annotations

import json

from tvm_tiling.decide.conv.conv_tiling import Candidate, ConvTiling
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
    assert rows == [("direct", "0.00025 s", "weights from L2"), ("wfold", "refused", "64 channels")]


def test_only_what_belongs_to_the_machine_is_shown():
    shown = {row.name: (row.section, row.value) for row in TILING.explained() if row.section != "compared"}
    assert shown == {
        "algorithm": ("algorithm", "direct"),
        "stride_fold": ("fold", "1"),
        "tile_rows": ("CPU", "2"),
        "copy_input": ("CPU", "no"),
        "utilisation": ("predicted", "50.0%"),
        "predicted_seconds": ("predicted", "0.00025 s"),
        "winograd": ("also", "no"),
    }
    assert TILING.explain().startswith(
        "conv tiling, mode best\n  algorithm\n    algorithm         direct       the cheapest"
    )


def test_json_has_every_field():
    plain = json.loads(TILING.to_json())
    assert plain["op"] == "conv" and plain["candidates"] == [list(candidate) for candidate in COMPARED]
    assert plain["pci"] is None and plain["reasons"][0] == ["form", "direct", "the cheapest"]
    assert TILING.why("form") == "the cheapest" and TILING.why("pci") == ""
