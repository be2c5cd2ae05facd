"""Computed extents as variables of the function."""

from __future__ import annotations

from tvm import te, tirx

from tvm_tiling.lowering.named_extents import _extents, with_named_extents
from tvm_tiling.lowering.samples import sampled, samples
from tvm_tiling.match.access import variables

N, M = tirx.Var("n", "int64"), tirx.Var("m", "int64")


def number(value):
    return tirx.const(value, "int64")


def copy_of(source, *target):
    """The elements of one shape under another, as for padded images: those in both."""
    x = te.placeholder(source)
    inside = [tirx.const(0, "int64")] * (len(source) - len(target))
    return te.create_prim_func([x, te.compute(target, lambda *at: x[(*inside, *at)] + tirx.const(1.0, "float32"))])


def shapes(func):
    return [[str(extent) for extent in parameter.shape] for parameter in func.params]


def test_an_extent_says_what_its_quotient_is_and_others_follow():
    windows = tirx.floordiv(N - number(1), number(2))
    func, sizes = with_named_extents(copy_of([windows * number(2) + number(3)], windows + number(1)))
    assert shapes(func) == [["T.int64(1) + extent_0 * T.int64(2)"], ["extent_0"]]
    assert list(sizes.values()) == [(128 - 1) // 2 + 1]
    assert all(variables(extent) <= set(sizes) for extent in _extents(func.body))


def test_an_extent_that_says_it_not_is_a_variable_of_its_own():
    smaller = tirx.min(tirx.floordiv(N, number(2)), tirx.floordiv(M, number(3)))
    with samples({N: 10, M: 9}):
        func, sizes = with_named_extents(copy_of([smaller * number(2)], smaller * number(2)))
        assert shapes(func) == [["extent_0"], ["extent_0"]]
        assert list(sizes.values()) == [6] == [sampled(smaller * number(2))]


def test_sizes_and_their_products_stay():
    for func in (copy_of([N, M], N, M), copy_of([N * M + number(1)], N * M)):
        assert with_named_extents(func) == (func, {})


def test_a_function_with_a_tensor_that_needs_more_sizes_stays():
    x = te.placeholder([tirx.floordiv(N, number(2)) * number(2)])
    wide = te.compute([tirx.floordiv(N, number(3))], lambda i: x[i], name="wide")
    func = te.create_prim_func([x, te.compute([number(1)], lambda i: wide[i])])
    assert with_named_extents(func)[0].same_as(func)
