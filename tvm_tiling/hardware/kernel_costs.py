"""Measured costs of CPU kernels other than multiply-adds and memory traffic, as one record.

Each field states its unit and how it was measured. Unless noted otherwise, the values are those of a Zen 4 server (two
cores of an EPYC at 2.6 GHz, 512-bit vectors in two halves): first measured or counted in isolation, then fitted jointly
so that the predicted times of the kernels of `benchmarks.algorithms` and `benchmarks.cost_model` match their measured
times best. A description of another machine may give its own values in a table [cpu.costs].
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from . import checks

UNITS = ("ns", "cycles", "share", "bytes", "rows", "factor")


def _measured(value: float, unit: str, how: str) -> Any:
    assert unit in UNITS
    return dataclasses.field(default=value, metadata={"unit": unit, "how": how})


def _later(value: float, unit: str, how: str) -> Any:
    """A cost that came after descriptions with [cpu.costs] were in use: their fingerprint leaves out its default."""
    assert unit in UNITS
    return dataclasses.field(default=value, metadata={"unit": unit, "how": how} | checks.ADDED)


@dataclass(frozen=True, kw_only=True)
class KernelCosts:
    """Times that do not depend on the clock are in ns, times of instructions in cycles; shares are fractions of 1."""

    # ---- threads
    parallel_start: float = _measured(
        2300.0, "ns", "a call on all cores of TVM's thread pool, beyond one on a single thread, with empty kernels"
    )
    meeting: float = _measured(
        577.0,
        "ns",
        "a step of a recurrent layer on all cores, beyond its share of a step on one core: 130 for an empty "
        "loop, the rest for cross-core cache-line transfer of the state; 200 to 700 for 32 to 256 units and "
        "one sequence",
    )
    state_line: float = _later(
        20.0,
        "ns",
        "per cache line of a recurrent layer's state that another core has written, beyond `meeting`; on a Sapphire "
        "Rapids 6 to 35 for 8 and 32 sequences of 128 and 256 units, as the difference of a step on two cores and half "
        "a step on one",
    )

    # ---- around loops
    tile_start: float = _measured(
        24.0, "cycles", "around the loop of a register tile: pipeline fill and drain, addresses, the last branch"
    )
    tap_start: float = _measured(8.0, "cycles", "around the loop over one tap of a convolution: addresses and a branch")
    block_start: float = _measured(
        12.0, "cycles", "around a k-block of a copied row, or of a matrix multiplication of few rows"
    )
    row_start: float = _measured(1.0, "cycles", "around the taps of one row of a depthwise kernel")
    depthwise_tile_end: float = _measured(6.0, "cycles", "around a depthwise tile: what does not overlap with the next")
    square_start: float = _measured(12.0, "cycles", "around the transform of one square of vectors (Winograd)")

    # ---- instructions, per vector or element
    page_step: float = _measured(2.0, "cycles", "per additional step, if each row of B is on a different page")
    whole_page_step: float = _later(
        0.0, "cycles", "more per step, if rows of B read in place are whole pages apart, which no prefetcher follows"
    )
    packed_vector: float = _measured(1.5, "cycles", "to pack one vector of a panel: its load and store")
    packed_group: float = _measured(0.75, "cycles", "extra per element of K that a dot instruction groups")
    transposed_vector: float = _measured(7.0, "cycles", "to pack one vector if B is transposed: load, shuffles, store")
    copied_vector: float = _measured(2.5, "cycles", "to copy a vector of the input with adjacent channels")
    turned_vector: float = _measured(8.0, "cycles", "the same, transposed from columns through registers")
    copied_element: float = _measured(
        1.5, "cycles", "the same per element, if there are fewer channels than vector lanes"
    )
    scattered_element: float = _measured(1.5, "cycles", "to write an element of an output with strided channels")
    gathered_lane: float = _measured(0.4, "cycles", "per lane of a vector gathered from strided memory")
    spread_element: float = _measured(
        4.0, "cycles", "per weight that W-fold packs at run time: 2.4 million in 4 to 5 ms, output channels adjacent"
    )
    shuffle: float = _measured(1.0, "cycles", "per shuffle of two vectors")
    unaligned_loads: float = _measured(2.0, "factor", "loads per vector that straddles two lines, mean over offsets")
    straddling_bytes: float = _measured(1.5, "factor", "bytes transferred for vectors that straddle two lines")
    transform_operation: float = _measured(0.9, "cycles", "per vector operation of Winograd's transforms")
    transform_store: float = _measured(1.3, "cycles", "per vector that a transform stores")
    border_vector: float = _measured(2.2, "cycles", "extra per vector of a square that crosses the border")
    plain_operation: float = _measured(0.6, "cycles", "per vector addition, comparison and the like")
    widened_element: float = _measured(
        1.4, "cycles", "to broadcast a 16-bit element to all lanes of a 32-bit vector (Sapphire Rapids)"
    )
    widened_vector: float = _measured(1.0, "cycles", "to read a vector of 16-bit elements as 32-bit ones")
    division: float = _measured(8.0, "cycles", "per vector division or square root")
    function: float = _measured(16.0, "cycles", "per vector exponential, hyperbolic tangent and the like")
    integer_multiply_add: float = _measured(
        1.4, "factor", "of 32-bit integers relative to floats: two instructions, one of which can use more units"
    )

    # ---- what does not overlap
    exposed_lesser: float = _measured(0.15, "share", "of the smaller of multiply-adds and memory traffic")
    exposed_miss: float = _measured(0.35, "share", "of an L1 miss that out-of-order execution does not hide")
    exposed_panel: float = _later(
        0.0, "share", "of the traffic of a packed panel from beyond L1, where multiply-adds take longer"
    )
    exposed_pages: float = _measured(
        0.06, "share", "of the time of the multiply-adds, if a B larger than L2 is read in place, page by page"
    )
    exposed_collision: float = _measured(0.1, "share", "of B's traffic, if its rows collide in L2")
    straddled_stream: float = _measured(
        0.9, "share", "of B's traffic, if its vectors straddle lines and all of B is read for every tile of A"
    )
    straddled_panel: float = _measured(0.1, "share", "the same, if one panel stays resident")
    exposed_weights: float = _measured(0.2, "share", "of the weights' traffic in a convolution")
    exposed_transformed_weights: float = _measured(0.25, "share", "of the weights' traffic, Winograd")
    depthwise_overlap: float = _measured(0.3, "share", "of the shorter of instructions and traffic from beyond L1")
    piece_start: float = _measured(
        512.0, "bytes", "that could have been transferred while a new piece of a row is started"
    )

    near_piece: float = _later(
        0.0, "bytes", "the same, if B is in the last-level cache and read in place, on a page for each row"
    )
    first_tile: float = _later(
        0.0,
        "share",
        "of the time of the first tile of rows that overlaps with B's arrival from beyond L2; 0 if all tiles overlap "
        "with it",
    )
    prefetched_panel: float = _later(
        1.0, "factor", "of the time to read prepacked B from L2, if prefetches of B occupy fill buffers as well"
    )
    result_piece: float = _later(0.0, "cycles", "per further piece of a row of the result, if the result exceeds L2")
    arriving_row: float = _later(
        0.0,
        "cycles",
        "per row of a tile, except for the first few, and cache line of A from beyond L2: all rows need their next "
        "lines at the same step",
    )
    operand_transfer: float = _later(
        0.0,
        "share",
        "of the time to read operands of a layer from another core's cache, and weights that several cores read, for "
        "which it waits",
    )
    prefetching_rows: float = _later(
        16.0, "rows", "of A, or points of a direct convolution, from which on kernels prefetch prepacked weights"
    )
    displaced_block: float = _later(
        0.0, "share", "of a block of packed B as large as L2 that leaves L2 between packing and reading"
    )
    uneven_piece: float = _later(
        0.0,
        "cycles",
        "per row of a panel read from L2 whose rows are longer than a cache line, but not a multiple of it; from "
        "the last-level cache more, by the ratio of the rates",
    )
    colliding_line: float = _later(
        1.0, "factor", "lines that arrive at each step of the reduction for a row of A whose lines collide in L1"
    )
    transformed_line: float = _later(
        0.0,
        "cycles",
        "per cache line of transformed inputs and sums (Winograd), times the share of L2 that those of a block take",
    )
    exposed_copy: float = _later(
        0.0,
        "share",
        "of the arrival of a convolution's input from beyond L2 that nothing but its copying overlaps with",
    )
    lone_line: float = _later(
        0.0,
        "cycles",
        "per cache line that a depthwise tile with a single vector of channels, of several, reads and writes beyond L2",
    )
    resumed_near: float = _later(
        0.0, "cycles", "to read and write a line of partial sums again for a further k-block, if they fit L2"
    )
    resumed_far: float = _later(0.0, "cycles", "the same, if they do not")

    # ---- usable fraction of a cache
    l1_share: float = _measured(0.8, "share", "of L1 for a resident tile of A, and for a cell's weights")
    l1_deepest: float = _measured(0.85, "share", "of L1 for a tile of A, at most, when choosing the depth of a k-block")
    l1_depthwise: float = _measured(0.6, "share", "of L1 for the input under a column of depthwise tiles")
    l2_block: float = _later(0.75, "share", "of L2 for a block of packed B")
    prefetched_block: float = _later(
        0.0,
        "bytes",
        "of prepacked weights in a column block of a direct convolution that prefetches the next block; 0: L2 "
        "alone bounds the block",
    )
    spread_block: float = _later(
        0.0,
        "bytes",
        "of prepacked B in a block of a matrix multiplication that prefetches the next block; 0: L2 alone bounds the "
        "block",
    )
    l2_whole_panel: float = _later(
        0.0, "share", "of L2 that a panel of B may take for the whole reduction to be one k-block, whatever L1 holds"
    )
    l2_ways: float = _later(
        1.0, "share", "of L2's ways that rows of B read in place may fill, if their addresses map to the same sets"
    )
    l2_share: float = _measured(0.8, "share", "of L2 for resident data")
    last_level_share: float = _measured(0.35, "share", "of the last-level cache, which is shared with other work")
    last_level_weights: float = _later(
        1.0,
        "share",
        "of the last-level cache up to which the transformed weights (Winograd) of one layer of a model stay there, "
        "within last_level_share",
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
