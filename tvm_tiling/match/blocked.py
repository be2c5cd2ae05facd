"""Products of weights in blocks, and rows made ready for them, among functions: those that carry what they are in an
attribute."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from tvm import tirx

from ..decide.gemm.block_rows import BlockRows
from ..decide.gemm.blocked import BlockedProduct
from ..lowering.samples import sampled
from ..operand_types import Encoding

PRODUCT, ROWS = "tvm_tiling.blocked_product", "tvm_tiling.block_rows"
InBlocks: TypeAlias = BlockedProduct | BlockRows


def attribute_of(told: InBlocks) -> dict[str, str]:
    """The attribute that says what a function is. The number of rows is not in it: tensors have that."""
    plain = asdict(replace(told, rows=0))
    if isinstance(told, BlockedProduct):
        plain["encoding"] = str(told.encoding)
    return {PRODUCT if isinstance(told, BlockedProduct) else ROWS: json.dumps(plain, sort_keys=True)}


def in_blocks(func: tirx.PrimFunc) -> InBlocks | None:
    """What `func` computes, its parameters being the inputs and outputs in their order; None for any other function."""
    for name, kind in ((PRODUCT, BlockedProduct), (ROWS, BlockRows)):
        text = func.attrs.get(name) if func.attrs is not None else None
        if text is not None:
            told: dict[str, Any] = json.loads(str(text))
            rows = func.params[0].shape[0]
            told["rows"] = int(rows) if isinstance(rows, tirx.IntImm) else rows
            if "encoding" in told:
                told["encoding"] = Encoding.parse(told["encoding"])
            return kind(**told)
    return None


def at_sample(product: BlockedProduct) -> Any:
    """The workload that decisions are made for where only a run brings the rows."""
    return product.workload(sampled(product.rows))
