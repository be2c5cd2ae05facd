"""Low-bit constant weights in PyTorch programs: integers and scales that represent floats.

torchao's weight-only quantisation stores a matrix as int8 and dequantises it before the matrix multiplication: by
torchao::dequantize_affine, or by a cast whose product is scaled afterwards. The matrix remains quantised (`FewBits`)
through transposition and casts, and a matrix multiplication takes it as blocked low-bit weights; any other consumer
gets floats. The number of bits is the minimum that the values need: torchao stores its 4-bit values in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind
from tvm import relax

from ...decide.gemm.blocked import BlockedProduct
from ...lowering.weight_panels import row_bytes, values_of
from ...operand_types import WEIGHT_FORMATS, Encoding
from ..blocked_weights import ALIGNED, product_in_blocks, stored
from .translation import Translation, Value

LEAST_WEIGHTS = 1 << 12  # minimum size of a matrix that is only cast; smaller ones become floats
_LARGEST_BLOCK = 256
_INNER = "export::access_subclass_inner_tensor"
_INTEGERS = (torch.int8, torch.uint8)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_FORMATS = [(row.bits, name) for name, row in WEIGHT_FORMATS.items() if row.emitted and row.bits is not None]


@dataclass(frozen=True, eq=False)
class FewBits:
    """A matrix q * scale - offset. `values`: q, integers [rows, columns], as stored; `scales` and `offsets`: floats
    [rows, groups] along the columns, or None for 1 and 0. `dtype`: the float type; `turned`: transposed."""

    values: torch.Tensor
    scales: torch.Tensor | None
    offsets: torch.Tensor | None
    dtype: torch.dtype
    turned: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        rows, columns = self.values.shape
        return (columns, rows) if self.turned else (rows, columns)

    @property
    def transposed(self) -> FewBits:
        """The transposed matrix."""
        return replace(self, turned=not self.turned)

    def floats(self) -> torch.Tensor:
        """The dequantised matrix, rounded to its type."""
        made = self.values.to(torch.float32)
        if self.scales is not None:
            groups = self.scales.shape[1]
            made = made.unflatten(1, (groups, -1)) * self.scales.float()[..., None]
            if self.offsets is not None:
                made = made - self.offsets.float()[..., None]
            made = made.flatten(1)
        return (made.t() if self.turned else made).to(self.dtype).contiguous()


_DEQUANTISE = "torchao::dequantize_affine"


def of_constants(program: torch.export.ExportedProgram) -> set[Any]:
    """torchao operators that dequantise only constants of the program, which PyTorch must not decompose."""
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT}

    def is_constant(node: Any) -> bool:
        while isinstance(node, torch.fx.Node) and node.op == "call_function" and _packet(node) == _INNER:
            node = node.args[0]
        return isinstance(node, torch.fx.Node) and node.op in ("placeholder", "get_attr") and node.name not in inputs

    found = [node for node in program.graph.nodes if node.op == "call_function" and _packet(node) == _DEQUANTISE]
    return {node.target for node in found} if all(is_constant(node.args[0]) for node in found) else set()


def _packet(node: torch.fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return "" if schema is None else str(schema.name)


# ---- nodes ----------------------------------------------------------------------------------------------------------


def few_bits(t: Translation, name: str, arguments: Mapping[str, Value]) -> FewBits | None:
    """The quantised matrix that this operator produces from constants; None if it produces tensors."""
    if name == f"{_DEQUANTISE}.default":
        return _dequantised(t, **arguments)
    first = next(iter(arguments.values()), None)
    if name == "aten::_to_copy.default" and not isinstance(first, FewBits):
        return _cast(t, first, arguments["dtype"])
    if not isinstance(first, FewBits):
        return None
    if name == "aten::_to_copy.default":
        dtype = arguments["dtype"] or first.dtype
        return replace(first, dtype=dtype) if dtype in _FLOATS else None
    turns = {
        "aten::t.default": lambda: True,
        "aten::permute.default": lambda: [place % 2 for place in arguments["dims"]] == [1, 0],
        "aten::transpose.int": lambda: (arguments["dim0"] - arguments["dim1"]) % 2 == 1,
    }
    return first.transposed if name in turns and turns[name]() else None


def _cast(t: Translation, value: Value, dtype: Any) -> FewBits | None:
    """A constant integer matrix, cast to floats."""
    held = t.content(value) if isinstance(value, relax.Expr) else None
    if held is None or held.dtype not in _INTEGERS or dtype not in _FLOATS or held.dim() != 2:
        return None
    return FewBits(held, None, None, dtype) if held.numel() >= LEAST_WEIGHTS else None


def _dequantised(
    t: Translation, input: Value, block_size: Any, scale: Value, zero_point: Value, **_: Any
) -> FewBits | None:
    """(input - zero_point) * scale, in blocks along the columns."""
    dtype = t.result.dtype
    held = t.content(input) if isinstance(input, relax.Expr) else None
    scales = t.content(scale) if isinstance(scale, relax.Expr) else None
    zeros = t.content(zero_point) if isinstance(zero_point, relax.Expr) else None
    if held is None or scales is None or (zeros is None) != (zero_point is None):
        return None
    sizes = list(block_size)
    if held.dtype not in _INTEGERS or held.dim() != 2 or sizes[0] != 1 or dtype not in _FLOATS:
        return None
    scales = scales.reshape(held.shape[0], -1).float()
    offsets = None if zeros is None or not zeros.any() else zeros.reshape(scales.shape).float() * scales
    return FewBits(held, scales, offsets, dtype)


def unpacked_int4(packed: torch.Tensor, n: int, k: int) -> torch.Tensor | None:
    """The values, uint8[n, k], packed by aten::_convert_weight_to_int4pack_for_cpu; None if it does not pack matrices
    of this shape. The packed layout differs between CPUs, but the operator only moves 4-bit values: packing their
    indices digit by digit shows where each of them goes."""
    places = torch.arange(n * k, dtype=torch.int64).reshape(n, k)
    source = np.zeros(2 * packed.numel(), np.int64)
    for shift in range(0, (n * k - 1).bit_length(), 4):
        try:
            digits = torch.ops.aten._convert_weight_to_int4pack_for_cpu(((places >> shift) & 15).int(), 1)
        except RuntimeError:
            return None
        source |= _nibbles(digits).astype(np.int64) << shift
    values = np.zeros(n * k, np.uint8)
    values[source] = _nibbles(packed)
    return torch.from_numpy(values.reshape(n, k))


def _nibbles(packed: torch.Tensor) -> np.ndarray:
    return values_of(packed.contiguous().view(torch.uint8).numpy().reshape(-1), 4)


# ---- matrix multiplications -----------------------------------------------------------------------------------------


def product_of_few_bits(t: Translation, x: relax.Expr, weights: FewBits) -> relax.Expr | None:
    """x w', float32, for x [..., k] and weights [n, k]; None if blocks do not fit the weights."""
    if weights.turned and weights.scales is None:
        weights = replace(weights, values=weights.values.t(), turned=False)
    if weights.turned:
        return None
    found = _blocks(weights)
    if found is None:
        return None
    product, parts = found
    held = stored(t.builder, "bits", [relax.const(part) for part in parts], product)
    return product_in_blocks(t.builder, t.cast(x, "float32"), held, product, "int16")


def _blocks(weights: FewBits) -> tuple[BlockedProduct, list[np.ndarray]] | None:
    """The matrix multiplication and the parts of the weights in the layout of MatMulNBits."""
    n, k = weights.values.shape
    groups = 1 if weights.scales is None else weights.scales.shape[1]
    block = _LARGEST_BLOCK if groups == 1 else min(gcd(k // groups, _LARGEST_BLOCK), _LARGEST_BLOCK)
    if block < ALIGNED:
        return None
    values = weights.values.contiguous().numpy()
    form = _form(values)
    if form is None:
        return None
    bits, name, low = form
    scales = np.ones((n, 1), np.float32) if weights.scales is None else weights.scales.float().numpy()
    # q scale - offset, with q counted from the lowest value; without offsets, the middle value represents 0
    offsets = np.zeros_like(scales) if weights.offsets is None else weights.offsets.float().numpy()
    offsets = offsets - np.float32(low) * scales
    plain = weights.offsets is None and low == -(1 << (bits - 1))
    times = -(-k // block) // groups
    numbers = [scales] if plain else [scales, offsets]
    numbers = [np.repeat(each, times, axis=1) for each in numbers]
    kind = "float16" if all(map(_is_half, numbers)) else "float32"
    encoding = Encoding(format=name, block=block, scales=kind, offsets=not plain)
    product = BlockedProduct(rows=1, n=n, k=k, encoding=encoding)
    counted = np.zeros((n, product.blocks * block), np.uint8)
    counted[:, :k] = values.astype(np.int16) - low
    packed = row_bytes(counted.reshape(n, product.blocks, block), bits).reshape(n, -1)
    return product, [packed, *(np.ascontiguousarray(each, kind) for each in numbers)]


def _form(values: np.ndarray) -> tuple[int, str, int] | None:
    """The minimum number of bits for the values, the format's name and the lowest value."""
    low, high = int(values.min()), int(values.max())
    for bits, name in sorted(_FORMATS):
        for first in (-(1 << (bits - 1)), 0):
            if first <= low and high < first + (1 << bits):
                return bits, name, first
    return None


def _is_half(numbers: np.ndarray) -> bool:
    """Return whether float16 represents the numbers exactly."""
    with np.errstate(over="ignore"):
        return bool((numbers.astype(np.float16).astype(np.float32) == numbers).all())
