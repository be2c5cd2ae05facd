"""Dot-product instructions as TIR: conversion of operands on their way into packed buffers, and the instruction itself.

An entry of hardware/dot_instructions.py describes each instruction: an LLVM intrinsic, or arithmetic if it names none.
TVM converts bfloat16 elements to float wherever they are computed with, and so never passes them to an intrinsic. Such
elements are packed as their bits. A small LLVM function that takes words calls the intrinsic; it is linked into the
module of the kernels and inlined there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..hardware.dot_instructions import DotInstruction
from ..operand_types import element_bytes, held_as
from .half_bits import bits_of, float32_of, kept_as

Expr: TypeAlias = tirx.Expr
# An element of an operand, cast to a type.
Read = Callable[[str], Expr]

_LLVM_TYPES = {"float32": "float", "int32": "i32", "bfloat16": "bfloat"}


def packed_a(engine: DotInstruction, read: Read) -> Expr:
    """Return an element of A in the form of packed buffers."""
    value = _as_bits(engine, read)
    return value if not engine.offset else tirx.bitwise_xor(value, tirx.const(-engine.offset, engine.operand))


def packed_b(engine: DotInstruction, read: Read) -> Expr:
    """Return an element of B in the form of packed panels."""
    return as_held(read(engine.stored)) if engine.stored else _as_bits(engine, read)


def from_panel(engine: DotInstruction, element: Expr) -> Expr:
    """Return an element of a packed panel in the form in which it is multiplied."""
    return from_held(element, engine.stored) if engine.stored else element


def first_of(engine: DotInstruction, elements: Expr, count: int) -> Expr:
    """Return a group of elements with zeros after the first `count`. The others do not belong to this sum, and
    infinities among them would turn the zeros by which they are multiplied into NaN."""
    mask = tirx.const((1 << 8 * count * element_bytes(engine.operand)) - 1, engine.word)
    return T.reinterpret(str(elements.ty), tirx.bitwise_and(T.reinterpret(engine.word, elements), mask))


def as_held(value: Expr) -> Expr:
    """Return a number of at most 32 bits in the form of packed buffers; see operand_types.held_as."""
    dtype = str(value.ty)
    return value if held_as(dtype) == dtype else bits_of(value, held_as(dtype))


def from_held(element: Expr, dtype: str) -> Expr:
    """Return the float32 value of an element of a packed buffer with numbers of type `dtype`."""
    if dtype == "float32":
        return element
    if held_as(dtype) == dtype:
        return T.Cast("float32", element)
    return float32_of(element)


def _as_bits(engine: DotInstruction, read: Read) -> Expr:
    if not _by_words(engine):
        value = read(engine.operand)
        if not isinstance(value, tirx.Cast) or str(value.value.ty) != "bfloat16" or isinstance(value.value, TensorLoad):
            return value
        return kept_as(value.value, engine.operand)  # a conversion to bfloat16 and back would be optimised away
    return bits_of(read(engine.b), engine.operand)


def dot(engine: DotInstruction, acc: Expr, left: Expr, right: Expr, lanes: int) -> Expr:
    """Return acc + the sum over each lane's group of left * right, or over the groups of each row and column for a
    matrix instruction; `left` in words of a lane, `right` in packed elements."""
    form = engine.forms[8 * engine.acc_bytes * lanes]
    intrinsic = form.intrinsic
    sums, length = f"{engine.acc}x{lanes}", lanes * engine.acc_bytes // element_bytes(engine.operand)
    if _by_words(engine):
        words = T.reinterpret(f"{engine.lane_word}x{lanes}", right)
        return T.call_pure_extern(sums, _wrapper(intrinsic), acc, left, words)
    left = T.reinterpret(f"{engine.operand}x{length}", left)
    if engine.b_first:
        left, right = right, left
    if intrinsic and engine.adds:
        return T.call_llvm_pure_intrin(sums, intrinsic, acc, left, right)
    if form.joins:
        pairs = T.call_llvm_pure_intrin(f"int16x{2 * lanes}", intrinsic, left, right)
        ones = T.broadcast(tirx.const(1, "int16"), 2 * lanes)
        return acc + T.call_llvm_pure_intrin(sums, form.joins, pairs, ones)
    if intrinsic:
        return acc + T.call_llvm_pure_intrin(sums, intrinsic, left, right)
    for r in range(engine.group):
        every = list(range(r, length, engine.group))
        acc = acc + T.Cast(sums, T.Shuffle([left], every)) * T.Cast(sums, T.Shuffle([right], every))
    return acc


def every_lane(engine: DotInstruction, word: Expr, lanes: int) -> Expr:
    """Return a word of A, which holds a group, in all lanes; see DotInstruction.by_lane."""
    if not engine.by_lane:
        return T.broadcast(word, lanes)
    return T.call_pure_extern(f"{engine.word}x{lanes}", _REPEAT, T.reinterpret("float32", word))


def _by_words(engine: DotInstruction) -> bool:
    """Return whether TVM cannot pass the elements, so that words are passed instead."""
    return engine.operand != engine.b


def _wrapper(intrinsic: str) -> str:
    return "tvm_tiling." + intrinsic


def linked(engine: DotInstruction) -> contextlib.AbstractContextManager[object]:
    """Return the context in which a function body that uses the instruction is written; it links the called LLVM
    functions."""
    text = _REPEATING if engine.by_lane else ""
    if _by_words(engine):
        lanes = {bits // (8 * engine.acc_bytes): form.intrinsic for bits, form in engine.forms.items()}
        text += "".join(_llvm(engine, count, intrinsic) for count, intrinsic in lanes.items())
    return T.attr({"pragma_import_llvm": text}) if text else contextlib.nullcontext()


# LLVM uses the lane operand of these instructions only if the vector had another element type; for a word it would
# first broadcast it with an additional instruction of the multiply units.
_REPEAT = "tvm_tiling.repeat"
_REPEATING = (
    f"define <4 x i32> @{_REPEAT}(float %word) {{ "
    "%first = insertelement <4 x float> poison, float %word, i64 0 "
    "%words = bitcast <4 x float> %first to <4 x i32> "
    "%all = shufflevector <4 x i32> %words, <4 x i32> poison, <4 x i32> zeroinitializer "
    "ret <4 x i32> %all } "
)


def _llvm(engine: DotInstruction, lanes: int, intrinsic: str) -> str:
    """Return an LLVM function of sums and words that calls the intrinsic of sums and elements; on one line, as
    TVMScript prints it."""
    sums, words = f"<{lanes} x {_LLVM_TYPES[engine.acc]}>", f"<{lanes} x i{8 * engine.acc_bytes}>"
    elements = f"<{lanes * engine.acc_bytes // element_bytes(engine.b)} x {_LLVM_TYPES[engine.b]}>"
    return (
        f"declare {sums} @{intrinsic}({sums}, {elements}, {elements}) "
        f"define {sums} @{_wrapper(intrinsic)}({sums} %acc, {words} %a, {words} %b) {{ "
        f"%left = bitcast {words} %a to {elements} "
        f"%right = bitcast {words} %b to {elements} "
        f"%sum = call {sums} @{intrinsic}({sums} %acc, {elements} %left, {elements} %right) "
        f"ret {sums} %sum }} "
    )
