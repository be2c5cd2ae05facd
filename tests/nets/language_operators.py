"""Random nodes of language models: block-quantised weights, attention in all variants, rotary positions, and the
operators in between.

A case is a model of one node and its inputs; sizes that may be dynamic have names. The smaller a choice, the simpler
the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from choices import Choices
from onnx import ModelProto, helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass
class Case:
    """`given`: inputs by name; `fixed`: those that are constants of the model; `named`: shapes with names of sizes.
    `tolerance` relative to the largest element; `valid`: for results, by number, the axis of rows and the number of
    meaningful ones, by batch."""

    operator: str
    given: dict[str, np.ndarray | None]
    outputs: list[str]
    attributes: dict[str, object]
    domain: str = MICROSOFT
    opset: int = 21
    fixed: set[str] = field(default_factory=set)
    named: dict[str, list[str | int]] = field(default_factory=dict)
    tolerance: float = 2e-5
    valid: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)

    def model(self, *, opened: bool) -> ModelProto:
        """Return the model; `opened`: with names for sizes."""
        last = max(number for number, value in enumerate(self.given.values()) if value is not None)
        names = [name if value is not None else "" for name, value in list(self.given.items())[: last + 1]]
        node = helper.make_node(self.operator, names, self.outputs, domain=self.domain, **self.attributes)
        inputs = [
            helper.make_tensor_value_info(
                name,
                helper.np_dtype_to_tensor_dtype(value.dtype),
                self.named.get(name, value.shape) if opened else value.shape,
            )
            for name, value in self.given.items()
            if value is not None and name not in self.fixed
        ]
        constants = [
            numpy_helper.from_array(self.given[name], name) for name in self.fixed if self.given[name] is not None
        ]
        floats = (np.dtype(np.float32), np.dtype(np.float16))
        kind = helper.np_dtype_to_tensor_dtype(
            next(v.dtype for v in self.given.values() if v is not None and v.dtype in floats)
        )
        results = [helper.make_tensor_value_info(name, kind, None) for name in self.outputs if name]
        graph = helper.make_graph([node], "case", inputs, results, constants)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Return the inputs of a run."""
        return {name: v for name, v in self.given.items() if v is not None and name not in self.fixed}


def draw_case(draw: Choices) -> Case:
    """Return a node and its inputs."""
    return draw.one(OPERATORS)(draw, np.random.default_rng(draw.below(1 << 16)))


# ---- weights in blocks -----------------------------------------------------------------------------------------------


def _scales(draw: Choices, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return scales of blocks; sometimes of any sign, or 0 for a block."""
    found = rng.random(shape) * 0.2 + 0.01
    if draw.often(30):
        found *= rng.integers(-1, 2, shape)
    return found


def _product(draw: Choices, rng: np.random.Generator) -> Case:
    bits, block = draw.one((4, 8)), draw.one((32, 16, 64, 128, 256))
    n, k = 1 + draw.below(90), 1 + draw.below(400)
    level = draw.one((0, 1, 4, 2, 3))
    half = draw.often(20)
    kind = np.float16 if half else np.float32
    blocks = -(-k // block)
    values = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    zeros = draw.one(("", "packed", "floats"))
    if zeros == "packed":
        found = rng.integers(0, 256, n * -(-blocks * bits // 8), np.uint8)
    elif zeros:
        found = rng.integers(0, 1 << bits, n * blocks).astype(kind)
    shape = draw.one(((1,), (1 + draw.below(40),), (2, 1 + draw.below(20))))
    given = {
        "x": rng.standard_normal((*shape, k)).astype(kind),
        "values": values,
        "scales": _scales(draw, rng, (n * blocks,)).astype(kind),
        "zeros": found if zeros else None,
        "order": None,
        "bias": rng.standard_normal(n).astype(kind) if draw.often(30) else None,
    }
    return Case(
        "MatMulNBits",
        given,
        ["y"],
        {"N": n, "K": k, "bits": bits, "block_size": block, "accuracy_level": level},
        fixed={"values", "scales", "zeros", "bias"},
        named={"x": [*("batch", "rows")[2 - len(shape) :], k]},
        tolerance=2e-2 if level == 4 else 4e-3 if half else 5e-6 if level == 1 else 1e-4,
    )


def _table(draw: Choices, rng: np.random.Generator) -> Case:
    kind, block = draw.one(("uint8", "int4", "uint4")), draw.one((32, 16, 64, 128))
    bits = draw.one((4, 8)) if kind == "uint8" else 4
    shape = [1 + draw.below(40), (1 + draw.below(4)) * block]
    gathered, blocked = 0, 1
    if draw.often(30):
        shape, blocked = [shape[0], 1 + draw.below(3), shape[1]], 2
        gathered = draw.one((0, 1)) if kind != "uint8" else 0
    blocks = [-(-size // block) if axis == blocked else size for axis, size in enumerate(shape)]

    def elements(extents: list[int]) -> np.ndarray:
        if kind == "uint8":
            return rng.integers(0, 256, [*extents[:-1], -(-extents[-1] * bits // 8)], np.uint8)
        low = -8 if kind == "int4" else 0
        return rng.integers(low, low + 16, extents).astype(getattr(ml_dtypes, kind))

    places = draw.one(((3,), (2, 4), (1,)))
    rows = shape[gathered]
    given = {
        "data": elements(shape),
        "places": rng.integers(-rows, rows, places).astype(draw.one((np.int64, np.int32))),
        "scales": _scales(draw, rng, tuple(blocks)).astype(np.float32),
        "zeros": elements(blocks) if draw.often(50) else None,
    }
    return Case(
        "GatherBlockQuantized",
        given,
        ["y"],
        {"bits": bits, "block_size": block, "gather_axis": gathered, "quantize_axis": blocked},
        fixed={"data", "scales", "zeros"},
        named={"places": [f"d{axis}" for axis in range(len(places))]},
        tolerance=1e-6,
    )


def _dequantised(draw: Choices, rng: np.random.Generator) -> Case:
    kind, block = draw.one(("int8", "uint8", "int4", "uint4")), draw.one((32, 16, 64, 128))
    shape, axis = (1 + draw.below(60), 1 + draw.below(90)), draw.one((0, 1))
    blocks = tuple(-(-size // block) if place == axis else size for place, size in enumerate(shape))
    dtype = np.dtype(getattr(ml_dtypes, kind, kind))
    low, high = (-8, 8) if kind == "int4" else (0, 16) if kind == "uint4" else (0, 100)
    given = {
        "data": rng.integers(low, high, shape).astype(dtype),
        "scales": _scales(draw, rng, blocks).astype(np.float32),
        "zeros": rng.integers(low, high, blocks).astype(dtype) if draw.often(50) else None,
    }
    fours = dtype.name.endswith("4")  # only constants have such types
    fixed = {"data", "zeros", "scales"} if fours else {"data", "zeros"} if draw.often(50) else set[str]()
    attributes = {"axis": axis - 2 * draw.one((0, 1)), "block_size": block}
    return Case("DequantizeLinear", given, ["y"], attributes, domain="", fixed=fixed, tolerance=1e-6)


# ---- attention over a cache ------------------------------------------------------------------------------------------


def _grouped(draw: Choices, rng: np.random.Generator) -> Case:
    groups, shared, width = 1 + draw.below(3), 1 + draw.below(3), draw.one((16, 8, 32, 64, 24))
    heads = groups * shared
    batch, length, past = 1 + draw.below(3), 1 + draw.below(12), draw.one((0, 1 + draw.below(30)))
    if past and batch > 1:
        length = 1  # onnxruntime supports several new rows after a past for one batch only
    total, room = past + length, draw.below(20) if past and draw.often(30) else 0
    lengths = np.full(batch, total - 1, np.int32)
    if batch > 1 and draw.often(50):
        lengths -= rng.integers(0, min(total, length if not past else total), batch).astype(np.int32)
        lengths[0] = total - 1

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    packed, rotary, bias = draw.often(30), draw.often(60), draw.often(15)
    columns = (heads + 2 * groups) if packed else heads
    given = {
        "query": floats(batch, length, columns * width),
        "key": None if packed else floats(batch, length, groups * width),
        "value": None if packed else floats(batch, length, groups * width),
        "past_key": floats(batch, groups, past + room, width) if past else None,
        "past_value": floats(batch, groups, past + room, width) if past else None,
        "lengths": lengths,
        "total": np.array(total, np.int32),
        "cosine": None,
        "sine": None,
        "positions": None,
        "bias": None,
    }
    attributes: dict[str, object] = {"num_heads": heads, "kv_num_heads": groups}
    if rotary:
        angles = rng.random((total + draw.below(9), width // 2)) * 6
        given |= {"cosine": np.cos(angles).astype(np.float32), "sine": np.sin(angles).astype(np.float32)}
        attributes |= {"do_rotary": 1, "rotary_interleaved": draw.one((0, 1))}
    if bias:
        given["bias"] = floats(draw.one((1, batch)), draw.one((1, heads)), length, total)
    if draw.often(20):
        attributes["scale"] = 0.3
    if draw.often(20):
        attributes["softcap"] = 5.0
    if draw.often(20):
        attributes["local_window_size"] = 1 + draw.below(total)
    valid = {1: (2, lengths + 1), 2: (2, lengths + 1)}
    if not past:
        valid[0] = (1, np.minimum(length, lengths + 1))
    return Case(
        "GroupQueryAttention",
        given,
        ["y", "present_key", "present_value"],
        attributes,
        fixed={"total", "cosine", "sine"},
        valid=valid,
    )


# ---- attention of encoders -------------------------------------------------------------------------------------------


def _mask(draw: Choices, rng: np.random.Generator, batch: int, length: int, total: int) -> np.ndarray | None:
    kind = draw.one(("", "keys", "lengths", "ends", "rows", "begins"))
    seen = 1 + rng.integers(0, total, batch)
    keys = (np.arange(total) < seen[:, None]).astype(np.int32)
    return {
        "": None,
        "keys": keys,
        "lengths": seen.astype(np.int32),
        "ends": np.concatenate([seen, rng.integers(0, seen)]).astype(np.int32),
        "rows": np.repeat(keys[:, None], length, axis=1),
        "begins": np.concatenate([seen, np.zeros(2 * batch + 2, int)]).astype(np.int32),
    }[kind]


def _multi_head(draw: Choices, rng: np.random.Generator) -> Case:
    heads, width = 1 + draw.below(4), draw.one((8, 16, 5, 32))
    batch, length = 1 + draw.below(3), 1 + draw.below(12)
    form = draw.one(("own", "other", "heads"))
    keys = length if form == "own" else 1 + draw.below(15)
    past = draw.one((0, 1 + draw.below(9))) if form != "heads" else 0
    total, hidden = keys + past, heads * width
    out = draw.one((width, width, 12)) if not past else width

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    by_head = form == "heads"
    given = {
        "query": floats(batch, length, hidden),
        "key": floats(batch, heads, keys, width) if by_head else floats(batch, keys, hidden),
        "value": floats(batch, heads, keys, out) if by_head else floats(batch, keys, heads * out),
        "bias": floats(2 * hidden + heads * out) if draw.often(30) else None,
        "mask": _mask(draw, rng, batch, length, total),
        "added": floats(draw.one((1, batch)), draw.one((1, heads)), length, total) if draw.often(30) else None,
        "past_key": floats(batch, heads, past, width) if past else None,
        "past_value": floats(batch, heads, past, out) if past else None,
    }
    attributes: dict[str, object] = {"num_heads": heads}
    if form == "own" and draw.often(40):
        attributes["unidirectional"] = 1
    if draw.often(20):
        attributes["scale"] = 0.4
    if draw.often(20):
        attributes["mask_filter_value"] = -50.0
    outputs = ["y", "present_key", "present_value"] if past or draw.often(30) else ["y"]
    if len(outputs) > 1 and draw.often(30):
        outputs.append("scores")
    named = {"query": ["batch", "length", hidden]}
    if form == "own":
        named |= {"key": ["batch", "length", hidden], "value": ["batch", "length", heads * out]}
    return Case(
        "MultiHeadAttention",
        given,
        outputs,
        attributes,
        named=named if not (past or given["added"] is not None) else {},
    )


def _with_products(draw: Choices, rng: np.random.Generator) -> Case:
    heads, width = 1 + draw.below(4), draw.one((8, 16, 5))
    batch, length, past = 1 + draw.below(3), 1 + draw.below(12), draw.one((0, 1 + draw.below(9)))
    total, hidden, columns = past + length, heads * width, 1 + draw.below(20)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    attributes: dict[str, object] = {"num_heads": heads}
    out = hidden
    if not past and draw.often(30):
        out = heads * (1 + draw.below(9))
        attributes["qkv_hidden_sizes"] = [hidden, hidden, out]
    if draw.often(40):
        attributes["unidirectional"] = 1
    given = {
        "x": floats(batch, length, columns),
        "weights": floats(columns, 2 * hidden + out),
        "bias": floats(2 * hidden + out),
        "mask": _mask(draw, rng, batch, length, total),
        "past": floats(2, batch, heads, past, width) if past else None,
        "added": floats(draw.one((1, batch)), draw.one((1, heads)), length, total) if draw.often(20) else None,
    }
    outputs = ["y", "present"] if past else ["y"]
    return Case("Attention", given, outputs, attributes, tolerance=1e-4)


def _standard(draw: Choices, rng: np.random.Generator) -> Case:
    groups, shared, width = 1 + draw.below(3), draw.one((1, 2, 3)), draw.one((8, 16, 5))
    heads, out = groups * shared, draw.one((width, width, 12))
    batch, length, keys = 1 + draw.below(3), 1 + draw.below(12), 1 + draw.below(15)
    past = draw.one((0, 1 + draw.below(9)))
    total = keys + past
    flat = draw.often(40)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    def rows(count: int, of: int, size: int) -> np.ndarray:
        return floats(batch, count, of * size) if flat else floats(batch, of, count, size)

    mask = None
    if draw.often(50):
        shape = draw.one(((length, total), (1, 1, length, total), (batch, heads, length, total)))
        mask = rng.random(shape) < 0.7 if draw.often(40) else floats(*shape)
        if mask.dtype == bool:
            mask[..., 0] = True  # a fully masked row is not defined
    attributes: dict[str, object] = {}
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    if draw.often(30):
        attributes["is_causal"] = 1
    if draw.often(20):
        attributes["scale"] = 0.3
    if draw.often(20):
        attributes["softcap"] = 4.0
    given = {
        "query": rows(length, heads, width),
        "key": rows(keys, groups, width),
        "value": rows(keys, groups, out),
        "mask": mask,
        "past_key": floats(batch, groups, past, width) if past else None,
        "past_value": floats(batch, groups, past, out) if past else None,
        "seen": None,
    }
    opset = draw.one((23, 24))
    if opset == 24 and not past and draw.often(40):
        given["seen"] = rng.integers(1, keys + 1, batch)
    outputs = ["y", "present_key", "present_value"] if past else ["y"]
    if draw.often(20):
        outputs = ["y", "present_key", "present_value", "scores"]
        if not past:
            outputs[1:3] = ["", ""]
        attributes["qk_matmul_output_mode"] = draw.one((0, 1, 2, 3))
    return Case("Attention", given, outputs, attributes, domain="", opset=opset)


def _rotary(draw: Choices, rng: np.random.Generator) -> Case:
    heads, pairs = 1 + draw.below(4), draw.one((4, 8, 3, 16))
    batch, length, most = 1 + draw.below(3), 1 + draw.below(12), 20
    flat, standard = draw.often(50), draw.often(40)
    angles = rng.random((most, pairs)) * 6
    positions = rng.integers(0, most - length, (batch, 1)) + np.arange(length)
    width = 2 * pairs
    attributes: dict[str, object] = {"interleaved": draw.one((0, 1))}
    if draw.often(30):
        width += 2 * draw.below(5)
        attributes |= {"rotary_embedding_dim": 2 * pairs, "num_heads": heads}
    if flat:
        attributes["num_heads"] = heads
    shape = (batch, length, heads * width) if flat else (batch, heads, length, width)
    x = rng.standard_normal(shape).astype(np.float32)
    tables = {"cosine": np.cos(angles).astype(np.float32), "sine": np.sin(angles).astype(np.float32)}
    if standard:
        given = {"x": x, **tables, "positions": positions}
        return Case("RotaryEmbedding", given, ["y"], attributes, domain="", opset=23, fixed=set(tables))
    if draw.often(30):
        positions = positions[:1, 0]
    given = {"x": x, "positions": positions, **tables}
    return Case("RotaryEmbedding", given, ["y"], attributes, fixed=set(tables))


# ---- what lies between -----------------------------------------------------------------------------------------------


_BETWEEN = [
    "QuickGelu",
    "BiasGelu",
    "FastGelu",
    "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "FusedMatMul",
]


def _between(draw: Choices, rng: np.random.Generator) -> Case:
    """Activations, normalisations and matrix multiplications that onnxruntime fuses; also in float16."""
    rows, columns = (1 + draw.below(3), 1 + draw.below(12)), 1 + draw.below(70)
    half = draw.often(25)
    kind = np.float16 if half else np.float32

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(kind)

    named: dict[str, list[str | int]] = {"x": ["batch", "rows", columns]}
    given: dict[str, np.ndarray | None] = {"x": floats(*rows, columns)}
    outputs, attributes, domain, operator = ["y"], {}, MICROSOFT, draw.one(tuple(_BETWEEN))
    if operator == "QuickGelu" and draw.often(50):
        attributes["alpha"] = draw.one((1.0, 0.5))
    elif operator in ("BiasGelu", "FastGelu"):
        given["bias"] = floats(columns) if operator == "BiasGelu" or draw.often(50) else None
    elif operator == "SimplifiedLayerNormalization":
        given["scale"], domain, attributes = floats(columns), "", {"axis": -1, "epsilon": draw.one((1e-5, 1e-2))}
        outputs = ["y", "inverse"] if not half and draw.often(50) else outputs
    elif operator.startswith("Skip"):
        skip = draw.one((rows, (1, rows[1]), rows[1:]))
        given |= {"skip": floats(*skip, columns), "gamma": floats(columns)}
        if operator == "SkipLayerNormalization":
            given["beta"] = floats(columns) if draw.often(50) else None
        given["bias"] = floats(columns) if draw.often(50) else None
        outputs = ["y", "", "", "sum"] if draw.often(50) else outputs
        attributes = {"epsilon": draw.one((1e-5, 1e-2))}
        named = named | {"skip": ["batch", "rows", columns]} if skip == rows else {}
    elif operator == "FusedMatMul":
        turned, moved, n = (draw.one((0, 1)), draw.one((0, 1))), draw.one((0, 1)), 1 + draw.below(40)
        inner = 1 + draw.below(50)
        shapes = [[*rows, columns, inner], [*rows, inner, n]]
        shapes = [[*s[:-2], s[-1], s[-2]] if turn else s for s, turn in zip(shapes, turned, strict=True)]
        if moved:  # the first axis after the other outer ones
            shapes = [[s[2], *s[:2], s[3]] for s in shapes]
        given, named = {"x": floats(*shapes[0]), "b": floats(*shapes[1])}, {}
        attributes = {"transA": turned[0], "transB": turned[1], "transBatchA": moved, "transBatchB": moved}
        attributes["alpha"] = draw.one((1.0, 0.25))
    return Case(operator, given, outputs, attributes, domain=domain, named=named, tolerance=4e-3 if half else 2e-5)


OPERATORS: tuple[Callable[[Choices, np.random.Generator], Case], ...] = (
    _product,
    _table,
    _grouped,
    _multi_head,
    _with_products,
    _standard,
    _rotary,
    _dequantised,
    _between,
)
