"""Into how many parts a model's batch is divided: the model runs once for each part, on a few images at a time.

With many images, the tensors between two operators leave the caches, although no image needs another one. On two cores
of a Zen 5, an image of a batch of 16 takes 1.1 to 1.5 times as long as alone (SqueezeNet 1.6 and 1.1 ms). Each part
reads all weights again and starts all parallel loops again, so a part has as many images as make both small beside its
multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware.cpu import Cpu

MOST_PARTS = 1024
OVERHEAD = 0.1  # largest share of weights and parallel loops in the time of a part


@dataclass(frozen=True, kw_only=True)
class BatchWork:
    """What a model computes for its whole batch of `images`: floating-point operations of convolutions and matrix
    multiplications, bytes of their weights, bytes read and written by the operator with the largest tensors, and
    parallel loops."""

    images: int
    flops: float
    weight_bytes: int
    widest_bytes: int
    loops: int


def decide_parts(work: BatchWork, cpu: Cpu) -> int:
    """Return the number of equal parts; 1 where the largest tensors fit the second-level caches of all cores, or no
    part is large enough."""
    if work.images < 2 or not work.flops or work.widest_bytes <= cpu.l2_bytes * cpu.cores:
        return 1
    peak = 2.0 * cpu.lanes(4) * cpu.fma_units * cpu.cores  # operations per cycle
    weights = work.weight_bytes / (cpu.bytes_per_cycle(work.weight_bytes) * cpu.cores)
    overhead = weights + work.loops * (cpu.parallel_start if cpu.cores > 1 else 0.0)
    for images in range(1, work.images):
        parts, rest = divmod(work.images, images)
        if rest == 0 and parts <= MOST_PARTS and overhead <= OVERHEAD * work.flops / parts / peak:
            return parts
    return 1
