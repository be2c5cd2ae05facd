"""Weights that a program dequantises in groups before it multiplies by them, as torchao's int4 and int8 weight-only
layers do: kept in blocks as they are stored.

`linear` of a constant behind torchao's dequantize_affine, and `mm` or `addmm` by a constant of 8 bits that was made
float and transposed. Floats are made of the constants of all other forms, as of any operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tvm import relax

from ...decide.gemm.blocked import BlockedProduct
from ...operand_types import Encoding
from ...runtime.tensors import tensor_of
from ..blocked_weights import stored

LEAST_WEIGHTS = 1 << 12  # of integers without a scale; fewer are multiplied as floats, which are exact
LEAST, MOST = 16, 256  # elements of a block; 8 bits by rows of 16 bits are summed in 32 bits up to there
_DEQUANTISED = "torchao::dequantize_affine.default"
_FLOATS = ("aten::to.dtype", "aten::_to_copy.default")
_TURNED = ("aten::t.default", "aten::permute.default", "aten::transpose.int")


@dataclass(frozen=True)
class GroupedWeights:
    """The n by k weights of a product: whole numbers `values`, from `low` on, less `zeros`, times `scales`, of
    [n, groups], or 1 where there are none."""

    values: np.ndarray
    low: int
    bits: int
    scales: np.ndarray | None = None
    zeros: np.ndarray | None = None

    @property
    def block(self) -> int | None:
        """Elements of a block that no two groups share, of one group the number that takes least memory; None where
        there is no such number."""
        k = self.values.shape[1]
        groups = 1 if self.scales is None else self.scales.shape[1]
        if groups == 1:
            return min((MOST, 128, 64, 32, LEAST), key=lambda size: -(-k // size) * (size * self.bits // 8 + 4))
        size = k // groups
        block = min(MOST, size & -size)
        return block if block >= LEAST else None

    def product(self) -> BlockedProduct | None:
        """The product that reads them, None where no kernel does."""
        block, (n, k) = self.block, self.values.shape
        if block is None:
            return None
        encoding = Encoding(format=f"int{self.bits}", block=block, scales="float32", zero_points=self.zeros is not None)
        return BlockedProduct(rows=1, n=n, k=k, encoding=encoding)

    def emitted(self, bb: Any) -> relax.Expr:
        """The weights in a graph."""
        product = self.product()
        assert product is not None
        unsigned: np.ndarray = (self.values.astype(np.int16) - self.low).astype(np.uint8)
        if self.bits == 4:
            even = np.pad(unsigned, ((0, 0), (0, unsigned.shape[1] % 2)))
            unsigned = even[:, 0::2] | (even[:, 1::2] << 4)
        scales = np.ones((product.n, 1), np.float32) if self.scales is None else self.scales.astype(np.float32)
        parts: list[np.ndarray] = [unsigned, _of_blocks(scales, product)]
        if self.zeros is not None:
            parts.append(_of_blocks(self.zeros.astype(np.int16) - self.low, product).astype(np.int16))
        constants = [relax.const(tensor_of(np.ascontiguousarray(part))) for part in parts]
        return stored(bb, "bits", constants, product)


def _of_blocks(numbers: np.ndarray, product: BlockedProduct) -> np.ndarray:
    """Numbers of groups, [n, groups], for each block."""
    return np.repeat(numbers, -(-product.blocks // numbers.shape[1]), axis=1)


@dataclass(frozen=True)
class ProductNode:
    """A node that multiplies `x` by such weights, and what is added."""

    x: torch.fx.Node
    weights: GroupedWeights
    bias: torch.fx.Node | None


def products_in_blocks(
    nodes: Iterable[torch.fx.Node], names: Mapping[torch.fx.Node, str], held: Mapping[torch.fx.Node, torch.Tensor]
) -> tuple[dict[torch.fx.Node, ProductNode], set[torch.fx.Node]]:
    """The products by weights in blocks, and nodes that nothing else needs. `names`: operators by node, `held`: the
    content of constants."""
    found: dict[torch.fx.Node, ProductNode] = {}
    sources: list[torch.fx.Node] = []
    for node in nodes:
        product = _product(node, names, held)
        if product is not None and product.weights.product() is not None and _is_float(product.x):
            found[node] = product
            sources.append(node.args[2 if names[node] == "aten::addmm.default" else 1])  # type: ignore[arg-type]
    unneeded: set[torch.fx.Node] = set()
    while sources:
        node = sources.pop()
        if node not in held and all(user in found or user in unneeded for user in node.users):
            unneeded.add(node)
            sources += [each for each in node.all_input_nodes if each not in held]
    return found, unneeded


def _is_float(node: torch.fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.float32, torch.float16, torch.bfloat16)


def _product(
    node: torch.fx.Node, names: Mapping[torch.fx.Node, str], held: Mapping[torch.fx.Node, torch.Tensor]
) -> ProductNode | None:
    name, args = names.get(node, ""), node.args
    if name == "aten::linear.default" and not node.kwargs:
        x, w, *rest = args
        weights = _grouped(w, names, held)
        return None if weights is None else ProductNode(x, weights, rest[0] if rest else None)  # type: ignore[arg-type]
    if name == "aten::_weight_int8pack_mm.default":
        x, w, scales = args
        values, factors = _constant(w, held), _constant(scales, held)
        if values is None or factors is None:
            return None
        weights = GroupedWeights(values.numpy(), -128, 8, factors.float().reshape(-1, 1).numpy())
        return ProductNode(x, weights, None)  # type: ignore[arg-type]
    if name in ("aten::mm.default", "aten::addmm.default") and not node.kwargs:
        bias, x, w = args if len(args) == 3 else (None, *args)
        weights = _turned(w, names, held)
        return None if weights is None else ProductNode(x, weights, bias)  # type: ignore[arg-type]
    return None


def _grouped(
    node: Any, names: Mapping[torch.fx.Node, str], held: Mapping[torch.fx.Node, torch.Tensor]
) -> GroupedWeights | None:
    """What a node stands for, n by k; None for anything else."""
    name = names.get(node, "")
    if name == _DEQUANTISED:
        return _affine(node, held)
    return _integers(node.args[0], held) if name in _FLOATS else None


def _turned(
    node: Any, names: Mapping[torch.fx.Node, str], held: Mapping[torch.fx.Node, torch.Tensor]
) -> GroupedWeights | None:
    """The same of a node whose value is k by n: the transposition is behind the conversion, or before it."""
    source = node.args[0] if isinstance(node, torch.fx.Node) and node.args else None
    if not isinstance(source, torch.fx.Node):
        return None
    if names.get(node, "") in _TURNED and node.meta["val"].ndim == 2:
        return _grouped(source, names, held)
    if names.get(node, "") in _FLOATS and names.get(source, "") in _TURNED:
        return _integers(source.args[0], held)
    return None


def _integers(node: Any, held: Mapping[torch.fx.Node, torch.Tensor]) -> GroupedWeights | None:
    value = _constant(node, held)
    if value is None or value.dtype != torch.int8 or value.ndim != 2 or value.numel() < LEAST_WEIGHTS:
        return None
    return GroupedWeights(value.numpy(), -128, 8)


def _constant(node: Any, held: Mapping[torch.fx.Node, torch.Tensor]) -> torch.Tensor | None:
    found = held.get(node) if isinstance(node, torch.fx.Node) else None
    return None if found is None else found.detach()


def _affine(node: torch.fx.Node, held: Mapping[torch.fx.Node, torch.Tensor]) -> GroupedWeights | None:
    """dequantize_affine(values, block_size, scale, zero_point, type, quant_min, quant_max) of 2 axes, groups along the
    second."""
    arguments: list[Any] = [*node.args, None, None]
    values, size, scales, zeros, _, low, high = arguments[:7]
    found, factors = _constant(values, held), _constant(scales, held)
    bits = {15: 4, 255: 8}.get(high - low) if isinstance(low, int) and isinstance(high, int) else None
    if (
        found is None
        or factors is None
        or bits is None
        or found.ndim != 2
        or found.dtype not in (torch.int8, torch.uint8)
    ):
        return None
    n, k = found.shape
    if list(size) != [1, size[1]] or k % size[1] or factors.numel() != n * (k // size[1]):
        return None
    offsets = None
    if zeros is not None:
        known = _constant(zeros, held)
        if known is None or known.is_floating_point():
            return None
        offsets = known.reshape(n, -1).to(torch.int32).numpy()
        if not ((offsets >= low) & (offsets <= high)).all():
            return None
        if (offsets == low + (1 << (bits - 1))).all():
            offsets = None
    if not ((found >= low) & (found <= high)).all():
        return None
    return GroupedWeights(found.numpy(), low, bits, factors.float().reshape(n, -1).numpy(), offsets)
