"""Features of a configuration for the cost model: numbers by name, with the same names for every configuration of an
algorithm.

Sizes are logarithms to base 2, so that doubling any of them is one step; shares and utilisation are unscaled.
"""

from __future__ import annotations

import math

from ...workload import ConvWorkload, GemmWorkload
from ..conv.conv_tiling import ConvTiling
from ..gemm.traffic import ceil_div
from ..tiling import GemmTiling
from .blocked_configs import blocked_product
from .record import Blocks, Config
from .rule import ConfigRule, Tiling

# Choices that are words; each is encoded as its index.
WORDS = ("mn", "nm", "none", "inline", "pack", "ahead", "channels", "columns", "normal", "stream", "acc", "out")

LEAST_UTILISATION = 1e-3  # utilisations below this are treated as equal


def features_of(
    workload: GemmWorkload | ConvWorkload, config: Config, rule: ConfigRule, predicted: float
) -> dict[str, float]:
    """Return the features of a configuration: its algorithm, the formulas' prediction, the causes of the predicted time
    (as shares of it and relative to the multiply-adds alone), utilisation, sizes of the shape, of tiles and of the
    blocks at every level, the traffic into each level, padding shares, and the features of its blocked matrix
    multiplication."""
    tiling, parts = rule.tiling_of(config), rule.parts(config)
    whole = sum(parts.values())
    found = {"predicted": _log(predicted), "utilisation": tiling.utilisation, "macs": _log(workload.macs)}
    found[f"form.{config.form}"] = 1.0
    found.update({f"shape.{name}": _log(size) for name, size in _extents(workload).items()})
    for name, value in config.choices:
        sizes = value if isinstance(value, tuple) else (value,)
        for place, size in enumerate(sizes):
            label = f"choice.{name}" if len(sizes) == 1 else f"choice.{name}.{place}"
            found[label] = float(WORDS.index(size)) if size in WORDS else _number(size)
    for blocks in config.levels:
        found.update(_level(workload, blocks))
    found.update({f"part.{name}": cycles / whole for name, cycles in parts.items()})
    ideal = whole * max(tiling.utilisation, LEAST_UTILISATION)
    found.update({f"spent.{name}": math.log2(1.0 + cycles / ideal) for name, cycles in parts.items()})
    found["padding"] = _padding(workload, tiling)
    if (product := blocked_product(workload, tiling)) is not None:
        found.update({f"blocked.{name}": value for name, value in product.features().items()})
    if isinstance(workload, ConvWorkload) and isinstance(tiling, ConvTiling):
        found.update(_image(workload, tiling))
    return found


def _image(w: ConvWorkload, t: ConvTiling) -> dict[str, float]:
    """Return the share of tiles outside the image, and how often a core starts a new band."""
    high, wide = (t.winograd.m, t.winograd.m) if t.winograd else (t.tile_rows or 1, t.tile_columns or 1)
    shares = t.winograd.threads_tiles if t.winograd else t.threads_rows or 1
    padded = ceil_div(w.ho, high) * high * ceil_div(w.wo, wide) * wide
    found = {"image.padding": _log(padded / (w.ho * w.wo)), "image.stride": _log(w.stride[1])}
    found.update({"image.high_tail": w.ho % high / w.ho, "image.wide_tail": w.wo % wide / w.wo})
    if t.keep_rows:
        found["image.bands"] = _log(ceil_div(w.ho, t.keep_rows * shares))
    return found


def _level(workload: GemmWorkload | ConvWorkload, blocks: Blocks) -> dict[str, float]:
    """Return the elements of the three blocks of a level, and the bytes loaded into the level in total."""
    name = blocks.level
    left, right, result = (math.prod(extents) for extents in (blocks.left, blocks.right, blocks.result))
    found = {f"{name}.left": _log(left), f"{name}.right": _log(right), f"{name}.result": _log(result)}
    # Multiply-adds of one block: the reduction of each result covers one column of the right block.
    macs = max(1, result * right // max(1, blocks.right[-1]))
    times = workload.macs / macs
    found[f"{name}.traffic"] = _log(times * (left * workload.a_bytes + right * workload.b_bytes))
    return found


def _extents(workload: GemmWorkload | ConvWorkload) -> dict[str, int]:
    if isinstance(workload, GemmWorkload):
        return {"m": workload.m, "n": workload.n, "k": workload.k, "batch": workload.batch}
    w = workload
    taps = w.kd * w.kh * w.kw
    return {"n": w.n, "h": w.ho, "w": w.wo, "ci": w.ci // w.groups, "co": w.co // w.groups, "taps": taps}


def _padding(workload: GemmWorkload | ConvWorkload, tiling: Tiling) -> float:
    """Return the share of the register tiles, or of the engine's blocks, that is outside the result."""
    if isinstance(tiling, GemmTiling) and isinstance(workload, GemmWorkload):
        sides = ((workload.m, tiling.tile_m), (workload.n, tiling.tile_n))
    elif isinstance(workload, ConvWorkload) and getattr(tiling, "tile_columns", None):
        vectors = (getattr(tiling, "vectors", None) or 1) * (getattr(tiling, "lanes", None) or 1)
        if getattr(tiling, "lanes_along", None) == "columns":
            vectors = 1
        sides = ((workload.wo, int(getattr(tiling, "tile_columns", 1))), (workload.co // workload.groups, vectors))
    else:
        return 0.0
    return 1.0 - math.prod(size / (ceil_div(size, tile) * tile) for size, tile in sides)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int):
        return float(bool(value))
    return _log(value)


def _log(value: float) -> float:
    return math.log2(value) if value > 0 else -64.0
