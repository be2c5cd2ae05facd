"""Storage levels: the blocks of each inside those of the enclosing level, and the bytes moved."""

from __future__ import annotations

from svg import Drawing

import tvm_tiling as tt

MACHINE = tt.Hardware.load("dla3")


def level_blocks() -> Drawing:
    """The block of the result that each level of dla3 holds, and its traffic."""
    workload = tt.GemmWorkload(m=512, k=1024, n=512, dtype="int8")
    config = tt.decide(workload, MACHINE)
    scale, left, top = 0.5, 40, 60
    drawing = Drawing("Blocks of the storage levels of dla3", int(top + workload.m * scale + 30))
    size = f"{workload.m} x {workload.k} x {workload.n} (m x k x n), int8, on {MACHINE.name}"
    drawing.text(left, 28, size, kind="title")
    drawing.rect(left, top, workload.n * scale, workload.m * scale, "none")
    for shade, level in enumerate(config.levels):
        drawing.rect(left, top, level.right[1] * scale, level.left[0] * scale, f"f{shade}")
    y = top + 14
    for shade, level in enumerate(config.levels):
        (rows, depth), columns = level.left, level.right[1]
        drawing.rect(left + 300, y - 10, 12, 12, f"f{shade}")
        instances = f", {level.instances} instances" if level.instances > 1 else ""
        drawing.text(left + 320, y, f"{level.name}{instances}", kind="title")
        drawing.text(left + 320, y + 18, f"{rows} x {depth} of A, {depth} x {columns} of B", kind="small")
        words = f"A is loaded {times(level.load_a)}, B {times(level.load_b)}"
        drawing.text(left + 320, y + 34, words, kind="small")
        moved = (level.bytes_a + level.bytes_b + level.bytes_out) / 2**20
        drawing.text(left + 320, y + 50, f"{moved:.1f} MiB in and out, {level.cycles:.0f} cycles", kind="small")
        y += 76
    return drawing


def times(count: int) -> str:
    """A number of times in words."""
    return "once" if count == 1 else f"{count} times"


PICTURES = {"level-blocks": level_blocks}
