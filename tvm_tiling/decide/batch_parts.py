"""Into how many parts a model's batch is divided: the model runs once for each part, on a few images at a time.

With many images, the tensors between two operators leave the caches, although no image needs another one. On two cores
of a Zen 5, 16 images of SqueezeNet take 24.2 ms at once and 17.3 in parts of one or two. Each part reads all weights
again and starts all parallel loops again, and smaller kernels fill registers and cores less evenly: a part has as many
images as make the former small beside its multiplications, and its tensors no smaller than the second-level caches.
Batches that fit the last-level cache gain nothing: 32 images of three layers of 64 channels on 16 x 16 pixels took 1.4
times as long in parts, and a single convolution of 16 images 1.1 times.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware.cpu import Cpu
from ..limits import MOST_PARTS

OVERHEAD = 0.1  # largest share of weights and parallel loops in the time of a part
LEAST_MULTIPLICATIONS = 3  # convolutions and matrix multiplications: there are tensors between them


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """What a model computes for its whole batch of `images`: the number of its convolutions and matrix multiplications,
    their floating-point operations and the bytes of their weights; bytes read and written by the operator with the
    largest tensors; at most how many parallel loops, as operators are fused later."""

    images: int
    multiplications: int
    flops: float
    weight_bytes: int
    widest_bytes: int
    loops: int


def decide_parts(work: BatchWork, cpu: Cpu) -> int:
    """Return the number of equal parts; 1 where the batch fits the last-level cache, or no part is large enough."""
    near, last = cpu.l2_bytes * cpu.cores, cpu.caches[-1]
    held = near if last.level < 3 else max(near, int(last.size * cpu.kernel_costs.last_level_share))
    if work.images < 2 or work.multiplications < LEAST_MULTIPLICATIONS or work.widest_bytes <= held:
        return 1
    peak = 2.0 * cpu.lanes(4) * cpu.fma_units * cpu.cores  # operations per cycle
    weights = work.weight_bytes / (cpu.bytes_per_cycle(work.weight_bytes) * cpu.cores)
    overhead = weights + work.loops * (cpu.parallel_start if cpu.cores > 1 else 0.0)
    for parts in range(min(work.images, MOST_PARTS), 1, -1):
        large = work.widest_bytes >= parts * near and overhead <= OVERHEAD * work.flops / parts / peak
        if large and work.images % parts == 0:
            return parts
    return 1
