"""Reshapes, transpositions and slices: what remains of them, and unchanged results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Network, default
from tvm import relax

from tvm_tiling.model.passes.dataflow import is_op
from tvm_tiling.model.passes.views import join_views, whole

op = relax.op
MOVES = ("reshape", "permute_dims", "strided_slice", "take", "squeeze", "expand_dims")


def moves(mod: tvm.IRModule) -> Counter[str]:
    found = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    names = [v.op.name[6:] for v in found if isinstance(v, relax.Call) and isinstance(v.op, tvm.ir.Op)]
    return Counter(name for name in names if name in MOVES)


def joined(net: Network, body) -> tvm.IRModule:
    """Return the module of `body` after the pass, whose results are unchanged."""
    mod = net.module(body)
    after = join_views(mod)
    arrays = net.arrays()
    np.testing.assert_allclose(default(after, arrays), default(mod, arrays), rtol=1e-4, atol=1e-5)
    return after


def test_a_walk_that_ends_where_it_began_is_nothing():
    def body(net, x):
        y = net.emit(
            op.reshape(net.emit(op.permute_dims(net.emit(op.reshape(x, (2, 3, 1, 20))), (1, 0, 2, 3))), (6, 20))
        )
        y = net.emit(op.permute_dims(net.emit(op.reshape(y, (3, 2, 20))), (1, 0, 2)))
        return op.add(net.emit(op.reshape(y, (6, 20))), net.c(20))

    assert not moves(joined(Network((6, 20)), body))


def test_moving_axes_of_one_element_is_a_reshape():
    def body(net, x):
        return op.permute_dims(net.emit(op.expand_dims(x, [0, 3])), (1, 3, 2, 0, 4))

    assert moves(joined(Network((4, 5, 6)), body)) == {"reshape": 1}


def test_parts_of_a_projection_are_slices_of_it():
    def body(net, x):
        y = net.emit(op.matmul(x, net.c(12, 36)))
        y = net.emit(op.permute_dims(net.emit(op.reshape(y, (7, 1, 3, 12))), (2, 0, 1, 3)))
        q, k = (net.emit(op.take(y, relax.const(place, "int64"), axis=0)) for place in (0, 2))
        heads = [net.emit(op.permute_dims(net.emit(op.reshape(part, (7, 4, 3))), (1, 0, 2))) for part in (q, k)]
        return op.multiply(*heads)

    after = joined(Network((7, 12)), body)
    # Only the projection precedes the slices: the transposition of all three parts is gone.
    assert moves(after)["take"] == 0 and moves(after)["strided_slice"] == 2 and moves(after)["permute_dims"] == 2


@pytest.mark.values
@pytest.mark.parametrize(
    ("shape", "axes", "of"),
    [
        ((2, 1, 140), (2,), (1, 2, 3)),
        ((2, 5, 28), (2,), (2, 3)),
        ((1, 2, 140), (-1, 0), (1, 2, 3)),
        ((2, 5, 4, 7, 1), (1, 4), (1,)),
        ((10, 28), (0,), (0, 1)),
    ],
)
@pytest.mark.parametrize("name", ["mean", "variance", "max"])
def test_a_reduction_of_a_reshaped_image_is_one_of_the_image(name, shape, axes, of):
    def body(net, x):
        return getattr(op, name)(net.emit(op.reshape(x, shape)), list(axes), keepdims=len(shape) != 2)

    (block,) = joined(Network((2, 5, 4, 7)), body)["main"].body.blocks
    (reduction,) = [b.value for b in block.bindings if isinstance(b.value, relax.Call) and is_op(b.value, name)]
    assert tuple(reduction.attrs.axis) == of and len(reduction.args[0].ty.shape) == 4


@pytest.mark.parametrize("shape", [(2, 5, 2, 14), (20, 14)])
def test_a_reduction_over_part_of_an_axis_stays_where_it_is(shape):
    def body(net, x):
        return op.mean(net.emit(op.reshape(x, shape)), [len(shape) - 2], keepdims=True)

    assert moves(joined(Network((2, 5, 4, 7)), body)) == {"reshape": 1}


def test_work_after_a_reshape_joins_the_gemm_before_it():
    def body(net, x):
        y = net.emit(op.reshape(net.emit(op.matmul(net.emit(op.reshape(x, (10, 8))), net.c(8, 6))), (1, 10, 6)))
        y = net.emit(op.nn.gelu(net.emit(op.add(y, net.c(1, 1, 6)))))
        y = net.emit(op.matmul(net.emit(op.reshape(y, (10, 6))), net.c(6, 8)))
        y = net.emit(op.add(x, net.emit(op.reshape(y, (1, 10, 8)))))
        return op.nn.layer_norm(y, net.c(8), net.c(8), axes=-1)

    after = joined(Network((1, 10, 8)), body)
    # The input's, which the residual shares, and the output's.
    assert moves(after)["reshape"] <= 3 and moves(join_views(after)) == moves(after)


def test_work_that_broadcasts_along_other_axes_stays():
    def body(net, x):
        y = net.emit(op.reshape(net.emit(op.matmul(x, net.c(8, 6))), (2, 5, 6)))
        return op.add(y, net.c(2, 1, 6))

    assert moves(joined(Network((10, 8)), body)) == {"reshape": 1}


def test_places_outside_of_an_axis_stay_what_they_are():
    mod = Network((4, 5)).module(lambda net, x: op.take(x, relax.const(4, "int64"), axis=0, mode="clip"))
    assert moves(join_views(mod)) == {"take": 1}


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_views_are_what_numpy_makes(data):
    shape = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 4, 6)), min_size=1, max_size=4)))
    root = relax.Var("x", relax.TensorType(shape, "float32"))
    array, view = np.arange(np.prod(shape)).reshape(shape), whole(root, shape)
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(array.ndim)))
            array, view = array.transpose(order), view.permuted(order)
        else:
            sizes, left = [], array.size
            while left > 1:
                sizes.append(data.draw(st.sampled_from([d for d in range(2, left + 1) if left % d == 0])))
                left //= sizes[-1]
            reshaped = view.reshaped(sizes)
            if reshaped is None:
                continue
            array, view = array.reshape(sizes), reshaped
    assert view.shape == array.shape
    places = np.zeros((1,), dtype=np.int64)
    for extent, stride in view.atoms:
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    np.testing.assert_array_equal(places, array.reshape(-1))


@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 1, 7)])
def test_a_tensor_is_one_atom_of_itself(shape):
    assert whole(relax.Var("x"), shape).atoms == ((int(np.prod(shape)), 1),)
