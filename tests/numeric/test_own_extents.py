"""Extents derived from sizes of a model as variables of a function."""

from __future__ import annotations

from tvm import te, tirx

from tvm_tiling.lowering.own_extents import with_own_extents
from tvm_tiling.lowering.samples import sampled, samples_beside


def rows(h, factor: int):
    return te.indexdiv(h - tirx.const(1, "int64"), tirx.const(factor, "int64")) + tirx.const(1, "int64")


def doubled(source, *shape):
    """Every other row of a tensor, twice its elements."""
    return te.create_prim_func([source, te.compute(shape, lambda i, j: source[i * 2, j] + source[i * 2, j])])


def test_quotients_become_variables_that_tensors_have():
    h = te.var("h", "int64")
    func, own = with_own_extents(doubled(te.placeholder((rows(h, 4), 8), name="x"), rows(h, 8), 8))
    first, second = (func.params[number].shape[0] for number in (0, 1))
    assert isinstance(first, tirx.Var) and isinstance(second, tirx.Var) and not first.same_as(second)
    with samples_beside({h: 33}):
        assert [sampled(own[v]) for v in (first, second)] == [9, 5]


def test_equal_extents_are_one_variable_and_sizes_stay():
    h = te.var("h", "int64")
    x, y = (te.placeholder((rows(h, 4), 8), name=name) for name in "xy")
    func, own = with_own_extents(te.create_prim_func([x, y, te.compute(x.shape, lambda i, j: x[i, j] + y[i, j])]))
    assert len(own) == 1 and len({parameter.shape[0] for parameter in func.params}) == 1
    plain = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x[i, j] + tirx.Cast("float32", h))])
    assert with_own_extents(plain) == (plain, {})
