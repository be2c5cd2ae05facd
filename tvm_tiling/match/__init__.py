"""From TIR to workloads: detection of the sum of products in a PrimFunc and of the operators fused around it.

These are the first modules that import TVM. A function is supported if it contains one multiply-add reduction;
element-wise blocks before it are inlined into the operands, those after it into the epilogue.
"""

from .access import Access, bind, substitute
from .conv import ConvProgram, match_conv
from .epilogue import epilogue_of
from .function import prim_func_of
from .gemm import GemmProgram, match_gemm
from .operator import match

__all__ = [
    "Access",
    "ConvProgram",
    "GemmProgram",
    "bind",
    "epilogue_of",
    "match",
    "match_conv",
    "match_gemm",
    "prim_func_of",
    "substitute",
]
