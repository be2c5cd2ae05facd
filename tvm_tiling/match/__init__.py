"""From TIR to workloads: finds the one sum of products of a PrimFunc and what is fused around it.

The first modules that import TVM. A function is served when it holds one multiply-add reduction; element-wise blocks
before it are folded into the operands, those behind it into the write-back.
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
