"""Every configuration of a small GEMM for several storage levels, random machines, and loads counted by executing the
loops."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator

from tvm_tiling.decide.levels.level_conv import best_of, level_convolutions
from tvm_tiling.decide.levels.level_gemm import level_product
from tvm_tiling.decide.levels.level_model import Blocks, LevelProduct
from tvm_tiling.decide.levels.level_time import times
from tvm_tiling.decide.levels.level_walk import walked_cycles
from tvm_tiling.decide.levels.search import best_blocks
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Level, Memory
from tvm_tiling.workload import ConvWorkload, GemmWorkload

WALKED = 100  # configurations with the lowest estimates


def random_case(rng: random.Random) -> tuple[GemmWorkload, Hardware]:
    """Return a GEMM with few blocks and a machine that holds some of them."""
    unit = rng.choice([1, 4])
    m, n = (rng.randint(1, 5) * unit - rng.choice([0, 0, 1 if unit > 1 else 0]) for _ in range(2))
    k_unit = rng.choice([1, 4, 16])
    k = rng.randint(1, 5) * k_unit
    levels = rng.choice([2, 2, 2, 3])
    sizes = sorted((2 ** rng.uniform(5, 9) * unit * unit for _ in range(levels)), reverse=True)
    found = []
    for number, size in enumerate(sizes):
        rooms = (
            {"bytes": int(3 * size)}
            if rng.random() < 0.4
            else {f"bytes_{operand}": int(size * rng.uniform(0.6, 1.6)) for operand in ("a", "b", "out")}
        )
        found.append(
            Level(
                name=f"l{number}",
                **rooms,
                instances=rng.choice([1, 1, 2]),
                bytes_per_cycle=rng.choice([None, 2, 4, 8]),
                latency=rng.choice([0, 0, 5]),
                unit_m=unit,
                unit_n=unit,
                unit_k=k_unit,
            )
        )
    base = Hardware.neartile(
        buf_a=64, buf_b=64, acc_max=64, bw_a=rng.choice([1, 2, 4]), bw_b=rng.choice([1, 2, 4]), macs_per_cycle=16
    )
    memories = {"external": Memory(bytes_per_cycle=4, latency=rng.choice([0, 10]))}
    return GemmWorkload(m=m, n=n, k=k, dtype="int8"), dataclasses.replace(
        base, name="random", levels=tuple(found), memories=memories
    )


def every_config(p: LevelProduct) -> Iterator[Blocks]:
    """Return all configurations whose blocks are multiples of inner ones: spreads, split levels, blocks, orders, steps
    of K, sums."""
    count = len(p.levels)
    fans = [[f for f in range(1, s.fan_out + 1) if s.fan_out % f == 0] for s in p.levels]
    for over in itertools.product(*fans):
        across_m = tuple(itertools.accumulate(over, int.__mul__))
        across_n = tuple(
            itertools.accumulate((s.fan_out // f for s, f in zip(p.levels, over, strict=True)), int.__mul__)
        )
        for split in range(count + 1):
            depths = _multiples(p.k, p.units[2]) if split < count else [p.k]
            for rows in _chains(p.m, p.units[0] * across_m[-1], split + 1):
                for columns in _chains(p.n, p.units[1] * across_n[-1], split + 1):
                    for orders in itertools.product(("mn", "nm"), repeat=min(split + 1, count)):
                        own = (*orders, *("mn",) * (split + 1 - len(orders)))
                        for depth, sums in itertools.product(depths, (1, 2)):
                            yield Blocks(rows, columns, own, depth, across_m, across_n, sums)


def _multiples(size: int, unit: int) -> list[int]:
    return [unit * i for i in range(1, -(-size // unit) + 1)]


def _chains(size: int, unit: int, length: int) -> Iterator[tuple[int, ...]]:
    """Return sizes of blocks from the outermost inwards, each a multiple of the next, none larger than necessary."""
    for inner in _multiples(size, unit):
        chains = [(inner,)]
        for _ in range(length - 1):
            chains = [
                (outer, *chain) for chain in chains for outer in _multiples(-(-size // chain[0]) * chain[0], chain[0])
            ]
        yield from chains


def walked_loads(p: LevelProduct, b: Blocks, level: int) -> tuple[int, int]:
    """Count the elements of A and of B that are loaded to a level by executing every loop and observing block
    changes."""
    last = min(level, b.split)
    steps = range(0, p.k, b.depth) if level >= b.split and b.split < len(p.levels) else [0]
    depth = b.depth if level >= b.split and b.split < len(p.levels) else p.k
    loaded = {"a": 0, "b": 0}
    held: dict[str, tuple[int, int] | None] = {"a": None, "b": None}
    for row, column in _walk(p, b, 0, last, (0, p.m), (0, p.n)):
        for step in steps:
            for operand, start, size, block in (("a", row, p.m, b.rows[last]), ("b", column, p.n, b.columns[last])):
                if held[operand] != (start, step):
                    held[operand] = (start, step)
                    loaded[operand] += min(block, size - start) * min(depth, p.k - step)
    return loaded["a"], loaded["b"]


def _walk(
    p: LevelProduct, b: Blocks, level: int, last: int, rows: tuple[int, int], columns: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    """Return (row, column) where the blocks of level `last` start, in execution order."""
    if level > last:
        yield rows[0], columns[0]
        return
    starts_m = range(rows[0], rows[1], b.rows[level])
    starts_n = range(columns[0], columns[1], b.columns[level])
    pairs = (
        itertools.product(starts_m, starts_n)
        if b.orders[level] == "mn"
        else ((row, column) for column in starts_n for row in starts_m)
    )
    for row, column in pairs:
        end_m, end_n = min(rows[1], row + b.rows[level]), min(columns[1], column + b.columns[level])
        yield from _walk(p, b, level + 1, last, (row, end_m), (column, end_n))


def compared(seeds: Iterable[int], most: int) -> list[float]:
    """Return the cycles of the decision's program relative to those of the best configuration with a low estimate, for
    random cases with at most that many configurations."""
    found = []
    for seed in seeds:
        p = level_product(*random_case(random.Random(seed)))
        estimated = []
        for number, b in enumerate(every_config(p)):
            if number >= most:
                break
            config = times(p, b)
            if config is not None:
                estimated.append((config.cost, number, b, config))
        else:
            choice = best_blocks(p)
            assert (choice is None) == (not estimated)
            if choice is not None:
                estimated.sort()
                least = min(walked_cycles(p, *own[2:]) for own in estimated[:WALKED])
                found.append(walked_cycles(p, choice.blocks, choice.times) / least)
    return found


def random_convolution(rng: random.Random) -> tuple[ConvWorkload, Hardware]:
    """Return a convolution with few blocks and a machine that holds some of them."""
    _, hardware = random_case(rng)
    unit = hardware.levels[0].unit_m
    groups = rng.choice([1, 1, 1, 2])
    taps, stride = rng.choice([1, 2, 3]), rng.choice([1, 1, 2])
    conv = ConvWorkload(
        n=rng.choice([1, 1, 2]),
        h=rng.randint(1, 5) * stride + taps,
        w=rng.randint(1, 4) + taps,
        ci=groups * rng.randint(1, 4),
        co=groups * rng.randint(1, 4) * unit,
        kh=taps,
        kw=rng.choice([1, taps]),
        stride=(stride, 1),
        padding=(taps // 2, 0, taps // 2, 0),
        groups=groups,
        dtype="int8",
    )
    levels = [
        dataclasses.replace(
            level,
            unit_n=1,
            unit_k=1,
            **{
                name: 4 * size
                for name in ("bytes", "bytes_a", "bytes_b", "bytes_out")
                if (size := getattr(level, name))
            },
        )
        for level in hardware.levels
    ]
    return conv, dataclasses.replace(hardware, levels=tuple(levels))


def compared_convolutions(seeds: Iterable[int], most: int) -> list[float]:
    """Return the decision's cost relative to the best of all configurations, strips and numbers of groups."""
    found = []
    for seed in seeds:
        conv, hardware = random_convolution(random.Random(seed))
        p = level_product(conv, hardware)
        every = [q for products in level_convolutions(p, conv) for q in products]
        configs = [(q, b) for q in every for b in itertools.islice(every_config(q), most + 1)]
        if len(configs) > most:
            continue
        costs = [config.cost for q, b in configs if (config := times(q, b)) is not None]
        choice = best_of(level_convolutions(p, conv), best_blocks)
        assert (choice is None) == (not costs)
        if choice is not None:
            found.append(choice[1].times.cost / min(costs))
    return found
