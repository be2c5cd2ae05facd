"""What kernels cost on a CPU core beside their multiply-adds and the bytes that arrive: measured numbers as one record.

A field says its unit and what was measured for it. Where nothing else is said, the numbers are those of a Zen 4 server
(two cores of an EPYC at 2.6 GHz, 512-bit vectors in two halves): first measured or counted by themselves, then fitted
together so that predicted times of the kernels of `benchmarks.forms` and `benchmarks.cost_model` come closest to their
measured ones. A description of another machine may state its own in a table [cpu.costs].
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from . import checks

UNITS = ("ns", "cycles", "share", "bytes", "factor")


def _measured(value: float, unit: str, how: str) -> Any:
    assert unit in UNITS
    return dataclasses.field(default=value, metadata={"unit": unit, "how": how})


@dataclass(frozen=True, kw_only=True)
class KernelCosts:
    """Times of events that no clock of a core changes in ns, of instructions in cycles; shares are parts of 1."""

    # ---- threads
    parallel_start: float = _measured(
        2300.0, "ns", "a call on all cores of TVM's thread pool beside one on a single thread, empty kernels"
    )
    meeting: float = _measured(
        577.0,
        "ns",
        "a step of a recurrent layer on all cores beyond its share of one on one core: 130 for an empty loop, the rest "
        "for the state's way from core to core; 200 to 700 for 32 to 256 units and one sequence",
    )

    # ---- around loops
    tile_start: float = _measured(
        24.0, "cycles", "around the loop of a register tile: the pipeline fills and drains, addresses, the last branch"
    )
    tap_start: float = _measured(8.0, "cycles", "around the run of one tap of a convolution: addresses and a branch")
    block_start: float = _measured(12.0, "cycles", "around a k-block of a copied row, or of a product of few rows")
    row_start: float = _measured(1.0, "cycles", "around the taps of one row of a depthwise kernel")
    depthwise_tile_end: float = _measured(6.0, "cycles", "around a depthwise tile: what does not run beside the next")
    square_start: float = _measured(12.0, "cycles", "around the transform of one square of vectors (Winograd)")

    # ---- instructions, per vector or element
    page_step: float = _measured(2.0, "cycles", "of a step more, where each row of B is on a page of its own")
    packed_vector: float = _measured(1.5, "cycles", "of one vector of a packed panel: its load and store")
    packed_group: float = _measured(0.75, "cycles", "more per element of K that a dot instruction groups")
    transposed_vector: float = _measured(7.0, "cycles", "of one where B lies transposed: load, shuffles, store")
    copied_vector: float = _measured(2.5, "cycles", "to copy a vector of the input whose channels are adjacent")
    turned_vector: float = _measured(8.0, "cycles", "the same, turned from columns through registers")
    copied_element: float = _measured(1.5, "cycles", "the same for one element, where channels are less than a vector")
    scattered_element: float = _measured(1.5, "cycles", "to write an element of an output of channels apart")
    gathered_lane: float = _measured(0.4, "cycles", "of a lane of a vector whose lanes are apart in memory")
    spread_element: float = _measured(
        4.0, "cycles", "of a weight that W-fold packs while it runs: 2.4 million in 4 to 5 ms, output channels adjacent"
    )
    shuffle: float = _measured(1.0, "cycles", "of a shuffle of two vectors")
    unaligned_loads: float = _measured(2.0, "factor", "loads that a vector across two lines takes, mean over places")
    straddling_bytes: float = _measured(1.5, "factor", "bytes that arrive for vectors that straddle two lines")
    transform_operation: float = _measured(0.9, "cycles", "of an operation of Winograd's transforms on a vector")
    transform_store: float = _measured(1.3, "cycles", "of a vector that a transform stores")
    border_vector: float = _measured(2.2, "cycles", "more for a vector of a square that crosses the border")
    plain_operation: float = _measured(0.6, "cycles", "of a vector's additions, comparisons and the like")
    widened_element: float = _measured(
        1.4, "cycles", "to read an element of 16 bits for all lanes of a vector of 32 (Sapphire Rapids)"
    )
    widened_vector: float = _measured(1.0, "cycles", "to read a vector of 16-bit elements as one of 32 bits")
    division: float = _measured(8.0, "cycles", "of a vector's division or root")
    function: float = _measured(16.0, "cycles", "of a vector's exponential, hyperbolic tangent and the like")
    integer_multiply_add: float = _measured(
        1.4, "factor", "of 32-bit integers beside one of floats: two instructions, one of which finds more units"
    )

    # ---- what does not overlap
    exposed_lesser: float = _measured(0.15, "share", "of the lesser of multiply-adds and arrival")
    exposed_miss: float = _measured(0.35, "share", "of a miss in L1 that out-of-order execution does not cover")
    exposed_panel: float = _measured(
        0.0, "share", "of the arrival of a packed panel from beyond L1, where multiply-adds take longer"
    )
    exposed_pages: float = _measured(
        0.06, "share", "of the multiply-adds' time, where a B larger than L2 is read in place, page by page"
    )
    exposed_collision: float = _measured(0.1, "share", "of B's arrival, where its rows collide in L2")
    straddled_stream: float = _measured(
        0.9, "share", "of B's arrival, where its vectors straddle lines and all of B passes every tile of A"
    )
    straddled_panel: float = _measured(0.1, "share", "the same, where one panel stays")
    exposed_weights: float = _measured(0.2, "share", "of the weights' arrival in a convolution")
    exposed_transformed_weights: float = _measured(0.25, "share", "of the weights' arrival, Winograd")
    depthwise_overlap: float = _measured(0.3, "share", "of the shorter of instructions and arrival from beyond L1")
    piece_start: float = _measured(512.0, "bytes", "that could have arrived while a new piece of a row starts to")

    colliding_line: float = _measured(
        1.0, "factor", "lines that arrive at each step of the reduction for a row of A whose lines collide in L1"
    )
    resumed_near: float = _measured(
        0.0, "cycles", "to read and write a line of sums again for a further k-block, where they fit L2"
    )
    resumed_far: float = _measured(0.0, "cycles", "the same, where they do not")

    # ---- how much of a cache may be counted on
    l1_share: float = _measured(0.8, "share", "of L1 for a tile of A that stays, and for a cell's weights")
    l1_deepest: float = _measured(
        0.85, "share", "of L1 for a tile of A, at most, when the depth of a k-block is chosen"
    )
    l1_depthwise: float = _measured(0.6, "share", "of L1 for the input under a column of depthwise tiles")
    l2_block: float = _measured(0.75, "share", "of L2 for a block of packed B")
    l2_whole_panel: float = _measured(
        0.0, "share", "of L2 that a panel of B may take for the whole reduction to be one k-block beyond what L1 holds"
    )
    l2_share: float = _measured(0.8, "share", "of L2 for what stays there")
    last_level_share: float = _measured(
        0.35, "share", "of the last-level cache, which is shared with whatever else runs"
    )
    l2_transformed: float = _measured(0.5, "share", "of L2 for the transformed inputs of a block of image tiles")
    l2_transformed_sums: float = _measured(0.25, "share", "of L2 for the sums of such a block")
    l2_scores: float = _measured(0.25, "share", "of L2 for a block of an attention's scores")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, most = getattr(self, field.name), 1.0 if field.metadata["unit"] == "share" else math.inf
            if value != 0 or field.default != 0:  # what no machine but some has may be 0
                value = checks.number("cpu.costs", field.name, value, most=most)
            checks.put(self, field.name, value)
