"""Graph passes: their effect on a network, and unchanged results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from networks import Network, attention, default, residual_network
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.model.passes.dataflow import array, constant, is_op, shape_of
from tvm_tiling.model.passes.layout import channels_last, to_first, to_last
from tvm_tiling.model.passes.simplify import simplify
from tvm_tiling.model.pipeline import lower
from tvm_tiling.schedule import this_cpu

op = relax.op


def calls(mod: tvm.IRModule) -> Counter[str]:
    found = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return Counter(v.op.name[6:] for v in found if isinstance(v, relax.Call) and isinstance(v.op, tvm.ir.Op))


def same(before: tvm.IRModule, after: tvm.IRModule, arrays: list[np.ndarray]) -> None:
    np.testing.assert_allclose(default(after, arrays), default(before, arrays), rtol=1e-4, atol=1e-5)


def test_batch_norm_moves_into_the_weights():
    net = Network((1, 3, 33, 33))
    mod = net.module(residual_network)
    plain = simplify(mod)
    assert calls(mod)["nn.batch_norm"] == 7
    assert not calls(plain)["nn.batch_norm"] and not calls(plain)["multiply"]
    same(mod, plain, net.arrays())


@pytest.mark.parametrize(("scale", "center", "axis"), [(True, True, 1), (False, True, 1), (True, False, 3)])
def test_batch_norm_in_training_takes_the_statistics_of_its_data(scale, center, axis):
    net = Network((2, 3, 5, 4))
    size = (2, 3, 5, 4)[axis]
    gamma, beta, mean, variance = (array(net.c(size)) for _ in range(4))
    variance = np.abs(variance) + 1

    def body(net, x):
        vectors = [constant(vector) for vector in (gamma, beta, mean, variance)]
        norm = op.nn.batch_norm(
            x, *vectors, axis=axis, epsilon=1e-3, momentum=0.25, scale=scale, center=center, training=True
        )
        return relax.Tuple([net.emit(relax.TupleGetItem(net.emit(norm), place)) for place in range(3)])

    (x,) = net.arrays()
    others = tuple(place for place in range(4) if place != axis)
    now, spread = x.mean(others, keepdims=True), x.var(others, keepdims=True)
    along = tuple(-1 if place == axis else 1 for place in range(4))
    expected = (x - now) / np.sqrt(spread + 1e-3)
    expected = expected * gamma.reshape(along) if scale else expected
    expected = expected + beta.reshape(along) if center else expected
    results = tt.compile(net.module(body), cache=False).run(x)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[1], 0.75 * mean + 0.25 * now.ravel(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[2], 0.75 * variance + 0.25 * spread.ravel(), rtol=1e-4, atol=1e-5)


def test_a_long_chain_whose_links_read_the_one_before_twice():
    """In one expression, it would read its input 2^30 times."""
    net = Network((3, 20))

    def body(net, x):
        for _ in range(30):
            x = net.emit(op.multiply(x, net.emit(op.subtract(relax.const(np.float32(1.5)), x))))
        return x

    (x,) = net.arrays()
    x = expected = np.abs(x) % 1
    for _ in range(30):
        expected = expected * (np.float32(1.5) - expected)
    np.testing.assert_allclose(tt.compile(net.module(body), cache=False).run(x), expected, rtol=1e-5)


def test_constants_are_computed():
    net = Network((2, 3))

    def body(net, x):
        ones = net.emit(op.broadcast_to(net.emit(op.add(net.c(1, 3), net.c(1, 3))), (2, 3)))
        turned = net.emit(op.permute_dims(net.emit(op.reshape(net.c(6), (3, 2))), (1, 0)))
        return op.add(net.emit(op.multiply(x, ones)), net.emit(op.sqrt(net.emit(op.abs(turned)))))

    mod = net.module(body)
    assert calls(simplify(mod)) == {"multiply": 1, "add": 1}
    same(mod, simplify(mod), net.arrays())


def test_a_sum_of_stacked_tensors_is_additions():
    net = Network((2, 3), (2, 3))

    def body(net, x, y):
        return op.sum(net.emit(op.stack([x, net.emit(op.broadcast_to(y, (2, 3))), x], axis=0)), axis=0)

    mod = net.module(body)
    assert calls(simplify(mod)) == {"add": 2}
    same(mod, simplify(mod), net.arrays())


@pytest.mark.parametrize(("end", "step", "kept"), [(6, 1, 0), (5, 1, 1), (-7, -1, 1)])
def test_slices_of_everything_are_dropped(end, step, kept):
    net = Network((2, 6))

    def body(net, x):
        return op.add(net.emit(op.strided_slice(x, [1], [0 if step > 0 else 5], [end], [step])), net.c(1))

    mod = net.module(body)
    plain = simplify(mod)
    assert calls(plain)["strided_slice"] == kept
    same(mod, plain, net.arrays())


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_the_two_orders_undo_each_other(rank):
    assert [to_last(rank)[a] for a in to_first(rank)] == list(range(rank))


def test_a_whole_region_is_channels_last_with_transpositions_at_its_borders():
    net = Network((1, 3, 33, 33))
    mod = simplify(net.module(residual_network))
    last = simplify(channels_last(mod))
    for block in last["main"].body.blocks:
        for binding in block.bindings:
            if is_op(binding.value, "nn.conv2d"):
                assert str(binding.value.attrs.data_layout) == "NHWC"
    # One at the input; after the mean only one pixel is left, and the reshape needs channels first.
    assert calls(last)["permute_dims"] <= 2
    same(mod, last, net.arrays())


def test_broadcast_operands_of_lower_rank_keep_their_axes():
    net = Network((2, 5, 4, 7))

    def body(net, x):
        y = net.emit(op.nn.conv2d(x, net.c(6, 5, 3, 3), padding=1))
        y = net.emit(op.add(y, net.c(6, 1, 1)))
        y = net.emit(op.multiply(y, net.c(7)))
        return op.maximum(y, net.c(1, 6, 4, 1))

    mod = net.module(body)
    last = simplify(channels_last(mod))
    assert calls(last)["permute_dims"] == 2
    same(mod, last, net.arrays())


@pytest.mark.values
@pytest.mark.parametrize(("parts", "order"), [((2, 3, 2, 20), (0, 2, 1, 3)), ((2, 3, 2, 4, 5), (0, 2, 1, 3, 4))])
@pytest.mark.parametrize("pixels_turn", [False, True])
def test_channels_are_exchanged_between_groups_in_channels_last_order(parts, order, pixels_turn):
    net = Network((2, 5, 4, 5))
    order = (*order[:-2], order[-1], order[-2]) if pixels_turn else order

    def body(net, x):
        y = net.emit(op.nn.conv2d(x, net.c(6, 5, 3, 3), padding=1))
        y = net.emit(op.reshape(y, parts))
        y = net.emit(op.reshape(net.emit(op.permute_dims(y, order)), (2, 6, 4, 5)))
        return op.nn.conv2d(y, net.c(6, 1, 3, 3), padding=1, groups=6)

    mod = net.module(body)
    last = simplify(channels_last(mod))
    assert calls(last)["permute_dims"] == (5 if pixels_turn else 3)  # two of them at the borders
    same(mod, last, net.arrays())


def test_slices_are_in_channels_last_order():
    net = Network((2, 5, 4, 6))

    def body(net, x):
        y = net.emit(op.nn.conv2d(x, net.c(6, 5, 3, 3), padding=1))
        parts = [net.emit(op.strided_slice(y, [1, -1], [a, 1], [b, 6], [1, 2])) for a, b in ((0, 2), (2, 6))]
        return op.nn.conv2d(net.emit(op.concat([parts[1], parts[0]], 1)), net.c(3, 6, 1, 1))

    mod = net.module(body)
    last = simplify(channels_last(mod))
    assert calls(last)["permute_dims"] == 2
    same(mod, last, net.arrays())


@pytest.mark.parametrize(("body", "shape"), [(residual_network, (1, 3, 33, 33)), (attention, (1, 17, 24))])
def test_lowered_networks_compute_what_they_did(body, shape):
    net = Network(shape)
    mod = net.module(body)
    scheduled, operators = lower(mod, this_cpu())
    arrays = net.arrays()
    machine = relax.VirtualMachine(relax.build(scheduled, target="llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(a) for a in arrays)).numpy()
    np.testing.assert_allclose(result, default(mod, arrays), rtol=1e-4, atol=1e-5)
    kinds = Counter(operator.kind for operator in operators)
    assert kinds["gemm"] + kinds["convolution"] + kinds["attention"] >= 4
    assert all(o.tiling is not None for o in operators if o.kind != "other")


def test_constant_weights_are_packed_once():
    net = Network((1, 3, 33, 33))
    scheduled, operators = lower(net.module(residual_network), this_cpu())
    names = {v.name_hint for v in scheduled.functions}
    for operator in operators:
        if operator.kind == "convolution":
            assert f"{operator.name}_packed" in names and operator.name not in names


def test_helpers_report_constants_and_shapes():
    value = constant(np.arange(6, dtype="float32").reshape(2, 3))
    assert shape_of(value) == (2, 3)
    np.testing.assert_array_equal(array(value), np.arange(6).reshape(2, 3))
    assert array(relax.Var("x", relax.TensorType((2,), "float32"))) is None
