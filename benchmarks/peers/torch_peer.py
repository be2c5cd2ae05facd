"""PyTorch, which bundles MKL and oneDNN."""

from __future__ import annotations

from typing import Any

from tvm_tiling.runtime.threads import default_thread_count
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import ConvOperands, GemmOperands
from . import torch_conv
from .base import Peer, Prepared, quickest
from .torch_conv import as_array, as_tensor


class Torch(Peer):
    """torch.matmul (MKL) into an existing tensor; if B is constant, the fastest of that, oneDNN and packed MKL.

    The packed variants return a new tensor each time: none can write into an existing one. For convolutions, too, the
    fastest variant is used.
    """

    name = "torch"
    needs = ("torch",)
    supports = (GemmWorkload, ConvWorkload)

    def refuses(self, workload: GemmWorkload | ConvWorkload, packed: bool) -> str | None:
        if isinstance(workload, GemmWorkload):
            return None
        if workload.padding[:2] != workload.padding[2:]:
            return "does not support asymmetric padding"
        return "int8 convolution kernels must be prepacked" if workload.dtype == "int8" and not packed else None

    def prepare(self, operands: GemmOperands | ConvOperands, packed: bool) -> Prepared:
        import torch

        torch.set_num_threads(default_thread_count())
        if isinstance(operands, ConvOperands):
            return quickest(torch_conv.ways(operands, packed))
        a, b = as_tensor(operands.a), as_tensor(operands.b)
        if operands.workload.dtype == "int8":
            # oneDNN's int8 matrix multiplication; its result must be contiguous.
            dense = torch.empty(operands.workload.m, operands.workload.n, dtype=torch.int32)
            return Prepared(lambda: torch._int_mm(a, b, out=dense), lambda: dense.numpy(), "int_mm")
        out = as_tensor(operands.output())
        ways = {"matmul": Prepared(lambda: torch.matmul(a, b, out=out), lambda: as_array(out))}
        if packed:
            ways |= _packed(a, b)
        return quickest(ways)


def _packed(a: Any, b: Any) -> dict[str, Prepared]:
    """Return the variants with prepacked B that this build of PyTorch has; it may lack either library."""
    import torch

    weight, rows = b.t().contiguous(), a.shape[0]
    last: dict[str, Any] = {}

    def keeping(name: str, product: Any) -> Prepared:
        def run() -> None:
            last[name] = product()

        run()
        return Prepared(run, lambda: as_array(last[name]))

    def onednn() -> Prepared:
        laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        return keeping("onednn", lambda: torch.ops.mkldnn._linear_pointwise(a, laid_out, None, "none", [], ""))

    def mkl() -> Prepared:
        laid_out = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
        return keeping("mkl", lambda: torch.ops.mkl._mkl_linear(a, laid_out, weight, None, rows))

    ways = {}
    for name, make in (("onednn packed", onednn), ("mkl packed", mkl)):
        try:
            ways[name] = make()
        except (AttributeError, RuntimeError):  # this build lacks the operator, or does not support these strides
            continue
    return ways
