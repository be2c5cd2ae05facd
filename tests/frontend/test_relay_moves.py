"""Relay's operators that move, slice, create, index and sort, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from relay_cases import Case, check

from tvm_tiling.frontend.open_shapes import OpenShapes
from tvm_tiling.frontend.relay.operators.shape_moves import new_shape

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4)).astype("float32")
V = RNG.normal(size=(2, 4, 6, 4)).astype("float32")
I = RNG.permutation(24).reshape(2, 3, 4).astype("int32")  # noqa: E741


def i32(*values):
    return np.array(values, "int32")


MOVES = [
    Case("reshape(%a, newshape=[0, -1])", {"a": X}, X.reshape(2, 12)),
    Case("reshape(%a, newshape=[-1, (int64)4])", {"a": X}, X.reshape(6, 4)),
    Case("reshape(%a, newshape=[-3, -2])", {"a": X}, X.reshape(6, 4)),
    Case("reshape(%a, newshape=[-2, 1i64])", {"a": X}, X.reshape(2, 3, 4, 1)),
    Case("reshape(%a, newshape=[-4, 1, -1, -2])", {"a": X}, X.reshape(1, 2, 3, 4)),
    Case("dyn.reshape(%a, %s)", {"a": X}, X.reshape(4, 6), {"s": i32(4, 6)}),
    Case("contrib_reverse_reshape(%a, newshape=[-1, 0])", {"a": X}, X.reshape(6, 4)),
    Case("reshape_like(%a, %b)", {"a": X, "b": X.reshape(4, 6)}, X.reshape(4, 6)),
    Case(
        "reshape_like(%a, %b, lhs_begin=1, rhs_begin=1, rhs_end=2)", {"a": X, "b": X.reshape(2, 12)}, X.reshape(2, 12)
    ),
    Case("transpose(%a, axes=None)", {"a": X}, X.T),
    Case("transpose(%a, axes=[0, -1, 1])", {"a": X}, X.transpose(0, 2, 1)),
    Case("squeeze(%a)", {"a": X[:1, :, :1]}, X[0, :, 0]),
    Case("squeeze(%a, axis=[0])", {"a": X[:1, :, :1]}, X[0, :, :1]),
    Case("expand_dims(%a, axis=1)", {"a": X}, X[:, None]),
    Case("expand_dims(%a, axis=-1, num_newaxis=2)", {"a": X}, X[..., None, None]),
    Case("concatenate((%a, %b), axis=-2)", {"a": X, "b": X[:, :1]}, np.concatenate([X, X[:, :1]], 1)),
    Case("concatenate((%a,))", {"a": X}, X),
    Case("stack((%a, %b), axis=-1)", {"a": X, "b": -X}, np.stack([X, -X], -1)),
    Case("split(%a, indices_or_sections=2, axis=2)", {"a": X}, np.split(X, 2, 2)),
    Case("split(%a, indices_or_sections=[1, 2], axis=1).1", {"a": X}, X[:, 1:2]),
    Case("split(%a, indices_or_sections=1, axis=1).0", {"a": X}, X),
    Case("tile(%a, reps=[2, 1, 3])", {"a": X}, np.tile(X, (2, 1, 3))),
    Case("tile(%a, reps=[2])", {"a": X}, np.tile(X, 2)),
    Case("dyn.tile(%a, %r)", {"a": X}, np.tile(X, (1, 2, 1)), {"r": i32(1, 2, 1)}),
    Case("repeat(%a, repeats=2, axis=1)", {"a": X}, X.repeat(2, 1)),
    Case("repeat(%a, repeats=2)", {"a": X}, X.repeat(2)),
    Case("reverse(%a, axis=-1)", {"a": X}, X[..., ::-1]),
    Case("broadcast_to(%a, shape=[5, 2, 3, 4])", {"a": X}, np.broadcast_to(X, (5, 2, 3, 4))),
    Case("dyn.broadcast_to(%a, %s)", {"a": X[:1]}, np.broadcast_to(X[:1], (2, 3, 4)), {"s": i32(2, 3, 4)}),
    Case("broadcast_to_like(%a, %b)", {"a": X[:, :1], "b": X}, np.broadcast_to(X[:, :1], (2, 3, 4))),
    Case("collapse_sum_like(%a, %b)", {"a": X, "b": X[0, :1]}, X.sum((0, 1))[None]),
    Case("collapse_sum_to(%a, shape=[3, 1])", {"a": X}, X.sum((0, 2))[:, None]),
    Case('layout_transform(%a, src_layout="NCHW", dst_layout="NHWC")', {"a": V}, V.transpose(0, 2, 3, 1)),
    Case(
        'layout_transform(%a, src_layout="NCHW", dst_layout="NCHW2c")',
        {"a": V},
        V.reshape(2, 2, 2, 6, 4).transpose(0, 1, 3, 4, 2),
    ),
    Case(
        "nn.space_to_depth(%a, block_size=2)",
        {"a": V},
        V.reshape(2, 4, 3, 2, 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 16, 3, 2),
    ),
    Case(
        "nn.depth_to_space(%a, block_size=2)",
        {"a": V},
        V.reshape(2, 2, 2, 1, 6, 4).transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 12, 8),
    ),
    Case(
        'nn.depth_to_space(%a, block_size=2, mode="CRD")',
        {"a": V},
        V.reshape(2, 1, 2, 2, 6, 4).transpose(0, 1, 4, 2, 5, 3).reshape(2, 1, 12, 8),
    ),
    Case(
        "nn.space_to_batch_nd(%a, block_shape=[2], paddings=[[1, 1]])",
        {"a": V},
        np.pad(V, [(0, 0), (1, 1), (0, 0), (0, 0)]).reshape(2, 3, 2, 6, 4).transpose(2, 0, 1, 3, 4).reshape(4, 3, 6, 4),
    ),
    Case(
        "nn.batch_to_space_nd(%a, block_shape=[2], crops=[[0, 1]])",
        {"a": V},
        V.reshape(2, 1, 4, 6, 4).transpose(1, 2, 0, 3, 4).reshape(1, 8, 6, 4)[:, :7],
    ),
]

SLICES = [
    Case("strided_slice(%a, begin=[0, 1], end=[2, 3], strides=[1, 1], axes=None)", {"a": X}, X[:, 1:3]),
    Case(
        "strided_slice(%a, begin=[0, 0, 3], end=[2, 3, -5], strides=[1, 2, -2], axes=None)", {"a": X}, X[:, ::2, ::-2]
    ),
    Case("strided_slice(%a, begin=[-2], end=[100], strides=[1], axes=[2])", {"a": X}, X[..., -2:]),
    Case(
        'strided_slice(%a, begin=[0, 1], end=[-1, 2], strides=[1], slice_mode="size", axes=None)', {"a": X}, X[:, 1:3]
    ),
    Case("dyn.squeeze(%a, %b)", {"a": X[:, None]}, X, {"b": i32(1)}),
    Case("dyn.strided_slice(%a, %b, %e, %s)", {"a": X}, X[:, 1:3], {"b": i32(0, 1), "e": i32(2, 3), "s": i32(1, 1)}),
    Case("slice_like(%a, %b)", {"a": X, "b": X[:1, :2, :2]}, X[:1, :2, :2]),
    Case("slice_like(%a, %b, axes=[1])", {"a": X, "b": X[:1, :2]}, X[:, :2]),
    Case(
        "nn.pad(%a, 1.5f, pad_width=[[0, 0], [1, 2], [3, 0]])",
        {"a": X},
        np.pad(X, [(0, 0), (1, 2), (3, 0)], constant_values=1.5),
    ),
    Case(
        "nn.pad(%a, 0i8 /* ty=int8 */, pad_width=[[0, 0], [1, 2], [3, 0]])",
        {"a": I.astype("int8")},
        np.pad(I.astype("int8"), [(0, 0), (1, 2), (3, 0)]),
    ),
    Case(
        'nn.pad(%a, 0f, pad_width=[[0, 0], [1, 2], [3, 2]], pad_mode="edge")',
        {"a": X},
        np.pad(X, [(0, 0), (1, 2), (3, 2)], "edge"),
    ),
    Case(
        'nn.pad(%a, 0f, pad_width=[[0, 0], [1, 2], [3, 2]], pad_mode="reflect")',
        {"a": X},
        np.pad(X, [(0, 0), (1, 2), (3, 2)], "reflect"),
    ),
    Case(
        "nn.pad(%a, %v, pad_width=[[0, 0], [1, 2], [0, 0]])",
        {"a": X, "v": np.array(3, "float32")},
        np.pad(X, [(0, 0), (1, 2), (0, 0)], constant_values=3),
    ),
    Case(
        "nn.mirror_pad(%a, pad_width=[[0, 0], [1, 2], [3, 2]])",
        {"a": X},
        np.pad(X, [(0, 0), (1, 2), (3, 2)], "symmetric"),
    ),
    Case(
        'nn.mirror_pad(%a, mode="REFLECT", pad_width=[[0, 0], [1, 2], [3, 2]])',
        {"a": X},
        np.pad(X, [(0, 0), (1, 2), (3, 2)], "reflect"),
    ),
]

DILATED = np.full((2, 5, 7), 2, "float32")
DILATED[:, ::2, ::2] = X
SET = X.copy()
SET[:, 0:3:2, 1:3] = 9
SLICES += [
    Case("nn.dilate(%a, strides=[1, 2, 2], dilation_value=2f)", {"a": X}, DILATED),
    Case(
        "strided_set(%a, %v, %b, %e, %s)",
        {"a": X, "v": np.full((2, 2, 2), 9, "float32")},
        SET,
        {"b": i32(0, 0, 1), "e": i32(2, 3, 3), "s": i32(1, 2, 1)},
    ),
    Case(
        "sliding_window(%a, axis=1, window_shape=[2, 3], strides=[1, 1])",
        {"a": X},
        np.lib.stride_tricks.sliding_window_view(X, (2, 3), (1, 2)),
    ),
]

CREATED = [
    Case("full(%v, shape=[2, 3], dtype=None)", {"v": np.array(2.5, "float32")}, np.full((2, 3), 2.5, "float32")),
    Case('full(3, shape=[2], dtype="int32")', {}, i32(3, 3)),
    Case("full_like(%a, 1.5f)", {"a": X}, np.full_like(X, 1.5)),
    Case('zeros(shape=[2, 3], dtype="float32")', {}, np.zeros((2, 3), "float32")),
    Case('ones(shape=[2], dtype="int8")', {}, np.ones(2, "int8")),
    Case("zeros_like(%a)", {"a": I}, np.zeros_like(I)),
    Case("ones_like(%a)", {"a": X}, np.ones_like(X)),
    Case('dyn.zeros(%s, dtype="float32")', {}, np.zeros((2, 3), "float32"), {"s": i32(2, 3)}),
    Case('dyn.ones(%s, dtype="float32")', {}, np.ones((2, 3), "float32"), {"s": i32(2, 3)}),
    Case('dyn.full(2f, %s, dtype="float32")', {}, np.full((2, 3), 2, "float32"), {"s": i32(2, 3)}),
    Case('arange(1, 10, 3, start=None, stop=None, step=None, dtype="int32")', {}, i32(1, 4, 7)),
    Case('arange(0f, 1f, 0.25f, dtype="float32")', {}, np.arange(0, 1, 0.25, dtype="float32")),
    Case('shape_of(%a, dtype="int64")', {"a": X}, np.array([2, 3, 4])),
    Case('ndarray_size(%a, dtype="int32")', {"a": X}, np.array(24, "int32")),
    Case("meshgrid((%a, %b))", {"a": X[0, 0], "b": X[0, :, 0]}, np.meshgrid(X[0, 0], X[0, :, 0], indexing="ij")),
    Case('meshgrid((%a, %b), indexing="xy")', {"a": X[0, 0], "b": X[0, :, 0]}, np.meshgrid(X[0, 0], X[0, :, 0])),
    Case(
        'one_hot(%a, 1f, 0f, depth=4, axis=-1, dtype="float32")',
        {"a": i32(1, 3, 5)},
        np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0] * 4], "float32"),
    ),
    Case('one_hot(%a, 5, -1, depth=3, axis=0, dtype="int32")', {"a": i32(1, 0)}, i32([-1, 5], [5, -1], [-1, -1])),
    Case(
        'dyn.one_hot(%a, 5, -1, %d, axis=0, dtype="int32")',
        {"a": i32(1, 0)},
        i32([-1, 5], [5, -1], [-1, -1]),
        {"d": np.array(3, "int32")},
    ),
]


def scattered(add, axis=1):
    out = X.copy()
    for place in np.ndindex(2, 2, 4):
        at = list(place)
        at[axis] = WHERE[place]
        out[tuple(at)] = UPDATE[place] + (out[tuple(at)] if add else 0)
    return out


WHERE = np.array([RNG.permutation(3)[:2] for _ in range(8)]).reshape(2, 4, 2).transpose(0, 2, 1).astype("int64")
UPDATE = RNG.normal(size=(2, 2, 4)).astype("float32")
PLACES = i32([0, 1, 1], [2, 0, 1])
ND = X.copy()
ND[PLACES[0], PLACES[1]] += UPDATE.reshape(-1, 4)[:3]
DIAGONAL = np.array([[1, 2, 3], [4, 5, 6]], "float32")
SETDIAG = X.copy()
SETDIAG[:, np.arange(3), np.arange(3)] = DIAGONAL
SORTED = np.array([1, 3, 5, 7], "float32")
DENSE = np.full((3, 4), -1, "float32")
DENSE[[0, 2], [1, 3]] = [7, 8]

INDEXED = [
    Case("take(%a, %i, axis=1)", {"a": X, "i": i32(2, 0, 5, -3)}, X[:, [2, 0, 2, 0]]),
    Case('take(%a, %i, axis=1, mode="wrap")', {"a": X, "i": i32(2, 3, -1)}, X[:, [2, 0, 2]]),
    Case("take(%a, %i)", {"a": X, "i": i32([5, 23])}, X.reshape(-1)[i32([5, 23])]),
    Case("take(%a, %i, axis=0)", {"a": X, "i": np.array(1, "int32")}, X[1]),
    Case("take(%a, %i, batch_dims=1, axis=1)", {"a": X, "i": i32([0, 2], [1, 1])}, X[[[0], [1]], [[0, 2], [1, 1]]]),
    Case("gather(%a, %i, axis=1)", {"a": X, "i": WHERE}, np.take_along_axis(X, WHERE, 1)),
    Case("gather_nd(%a, %i)", {"a": X, "i": PLACES}, X[PLACES[0], PLACES[1]]),
    Case("gather_nd(%a, %i, batch_dims=1)", {"a": X, "i": i32([2, 0])}, X[[0, 1], [2, 0]]),
    Case("scatter(%a, %i, %u, axis=1)", {"a": X, "i": WHERE, "u": UPDATE}, scattered(False)),
    Case("scatter_add(%a, %i, %u, axis=1)", {"a": X, "i": WHERE, "u": UPDATE}, scattered(True)),
    Case("scatter_elements(%a, %i, %u, axis=1)", {"a": X, "i": WHERE, "u": UPDATE}, scattered(False)),
    Case('scatter_elements(%a, %i, %u, axis=1, reduction="add")', {"a": X, "i": WHERE, "u": UPDATE}, scattered(True)),
    Case('scatter_nd(%a, %i, %u, mode="add")', {"a": X, "i": PLACES, "u": UPDATE.reshape(-1, 4)[:3]}, ND),
    Case("adv_index((%a, %i, %j))", {"a": X, "i": i32(1, 0), "j": i32(2, 2)}, X[[1, 0], [2, 2]]),
    Case(
        "unravel_index(%i, %s)",
        {"i": i32(5, 23, 0)},
        np.array(np.unravel_index([5, 23, 0], (2, 3, 4)), "int32"),
        {"s": i32(2, 3, 4)},
    ),
    Case("invert_permutation(%i)", {"i": i32(2, 0, 3, 1)}, i32(1, 3, 0, 2)),
    Case(
        "sparse_to_dense(%i, %v, -1f, output_shape=[3, 4])",
        {"i": i32([0, 1], [2, 3]), "v": np.array([7, 8], "float32")},
        DENSE,
    ),
    Case("matrix_set_diag(%a, %d)", {"a": X, "d": DIAGONAL}, SETDIAG),
    Case("trilu(%a, 1)", {"a": X}, np.triu(X, 1)),
    Case("trilu(%a, 0, upper=False)", {"a": X}, np.tril(X)),
    Case('searchsorted(%s, %v, dtype="int32")', {"s": SORTED, "v": np.array([0, 3, 8], "float32")}, i32(0, 1, 4)),
    Case("searchsorted(%s, %v, right=True)", {"s": SORTED, "v": np.array([0, 3, 8], "float32")}, i32(0, 2, 4)),
    Case('einsum((%a, %b), equation="ijk,lk->ijl")', {"a": X, "b": X[0]}, np.einsum("ijk,lk->ijl", X, X[0])),
    Case(
        "sequence_mask(%a, %n, mask_value=-1f)",
        {"a": X, "n": i32(1, 2, 0)},
        np.where(np.arange(2)[:, None, None] < np.array([1, 2, 0])[:, None], X, -1),
    ),
    Case("reverse_sequence(%a, %n)", {"a": X, "n": i32(2, 3)}, np.stack([X[0][[1, 0, 2]], X[1][::-1]])),
    Case("nn.fifo_buffer(%a, %b, axis=1)", {"a": X[:, :1], "b": X}, np.concatenate([X[:, 1:], X[:, :1]], 1)),
]

SORTS = [
    Case("sort(%a, axis=1)", {"a": X}, np.sort(X, 1)),
    Case("sort(%a, is_ascend=False)", {"a": X}, -np.sort(-X)),
    Case('argsort(%a, axis=1, dtype="int32")', {"a": X}, X.argsort(1).astype("int32")),
    Case('argsort(%a, is_ascend=False, dtype="int64")', {"a": X}, (-X).argsort()),
    Case('topk(%a, k=2, dtype="int32")', {"a": X}, [-np.sort(-X)[..., :2], (-X).argsort()[..., :2].astype("int32")]),
    Case('topk(%a, k=2, axis=1, ret_type="values", is_ascend=True)', {"a": X}, np.sort(X, 1)[:, :2]),
    Case('topk(%a, k=0, ret_type="indices", dtype="int32")', {"a": X}, (-X).argsort().astype("int32")),
    Case('dyn.topk(%a, %k, ret_type="values")', {"a": X}, -np.sort(-X)[..., :3], {"k": np.array(3, "int64")}),
]


@pytest.mark.parametrize(
    "cases", [MOVES, SLICES, CREATED, INDEXED, SORTS], ids=["moves", "slices", "created", "indexed", "sorts"]
)
def test_operators(cases):
    check(cases)


def test_new_shapes():
    assert new_shape(OpenShapes(), (2, 3, 4), (0, 0, -1)) == [2, 3, 4]
    assert new_shape(OpenShapes(), (2, 3, 4), (-3, 4)) == [6, 4]
    assert new_shape(OpenShapes(), (2, 3, 4), (6, 1, -1)) == [6, 1, 4]
    assert new_shape(OpenShapes(), (2, 3, 4, 5), (-3, -3)) == [6, 20]
    assert new_shape(OpenShapes(), (6, 4), (-4, -1, 2, -2)) == [3, 2, 4]
    assert new_shape(OpenShapes(), (0, 3), (0, 3), True) == [0, 3]
    for codes in ((5, -1), (-1, -1), (2, 3, 4, 0), (-4, 5, -1, -2), (-5,), (7, 4)):
        with pytest.raises(ValueError, match=r"newshape|-4"):
            new_shape(OpenShapes(), (2, 3, 4), codes)
