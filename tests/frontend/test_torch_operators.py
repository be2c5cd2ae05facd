"""PyTorch operators that move, index, multiply, pool, resample and normalise: PyTorch's results, including types.

The cases of a subject share one module, so that a subject is compiled once.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from default_build import run  # noqa: E402

import tvm_tiling  # noqa: E402
from tvm_tiling.errors import TilingError, UnsupportedOperator  # noqa: E402
from tvm_tiling.frontend import load_model  # noqa: E402

TOLERANCE = {torch.float16: 4e-3, torch.float32: 2e-5, torch.float64: 1e-10}


def module_of(function):
    class Network(torch.nn.Module):
        def forward(self, *arguments):
            return function(*arguments)

    return Network()


def compare(function, *inputs, compiled=False):
    """`compiled`: by this package instead of TVM's default pipeline, whose maximum and minimum ignore NaN and
    infinities."""
    torch.manual_seed(0)
    network = function if isinstance(function, torch.nn.Module) else module_of(function)
    with torch.no_grad():
        expected = network.eval()(*inputs)
    expected = torch.utils._pytree.tree_leaves(expected)
    arrays = [value.numpy() for value in inputs]
    if compiled:
        results = tvm_tiling.compile(network, example_inputs=inputs, cache=False).run(*arrays)
    else:
        results = run(load_model(network, example_inputs=inputs), arrays)
    assert len(results) == len(expected)
    for place, (result, value) in enumerate(zip(results, expected, strict=True)):
        value = value.detach()
        assert (result.shape, str(result.dtype)) == (tuple(value.shape), str(value.dtype)[6:]), place
        error = TOLERANCE.get(value.dtype, 0)
        np.testing.assert_allclose(result, value.numpy(), rtol=error, atol=error, err_msg=f"output {place}")


def seeded(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


X = seeded(2, 4, 6)
FRONT, BACK = torch.tensor([0, -1, 1]), torch.tensor([[1], [-2], [3]])

MOVES = {
    "shapes": lambda x: (x.reshape(8, 6), x[None], x.permute(2, 0, 1), x.expand(3, 2, 4, 6), x.flatten(), x[..., None]),
    "copies": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1), torch.cat([x, x], 1), torch.stack([x, x], -1)),
    "cat of types": lambda x: torch.cat([x, x.long(), torch.zeros(0)], 0),
    "slices": lambda x: (x[:, -3:], x[..., ::2], x[:, :100], x[:, -100:2], x[:, 1:1], x[:, -1], x[:, :, 1:6:3]),
    "parts": lambda x: (*x.split([1, 2, 1], 1), *x.unbind(1), *x.chunk(3, 2), *x.split([0, 6], 2)),
    "orders": lambda x: (x.flip([0, -1]), x.rot90(), x.roll(-2, 1), x.roll((1, 9), (0, 2)), x.roll(5), x.roll(-7, -2)),
    "diagonals": lambda x: (x.diagonal(), x.diagonal(1, 1, 2), x.diagonal(-1, 0, 2)),
    "storage": lambda x: (x.as_strided((3, 3), (2, 3), 4), x.unfold(1, 2, 1), x.unfold(2, 3, 2)),
    "storage of a transposed tensor": lambda x: x.permute(2, 0, 1).as_strided((2, 3), (5, 2), 1),
    "pads": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -2, -1, 3), value=1.5), F.pad(x.long(), (1, 1), value=7)),
    "pads from inside": lambda x: (
        F.pad(x, (2, 1), mode="reflect"),
        F.pad(x[None], (2, 1, -1, 3), mode="reflect"),
        F.pad(x[None], (2, 1, 0, 3), mode="replicate"),
        F.pad(x, (1, 2), mode="circular"),
    ),
    "parts written": lambda x: (
        x.slice_scatter(x[:, :2], 1, 1, 3),
        x.slice_scatter(x[..., :3], 2, 0, 6, 2),
        x.select_scatter(x[:, 0], 1, -1),
        torch.diagonal_scatter(x, x[:, 0, :4], 0, 1, 2),
        x.as_strided_scatter(x[0, :2, :2] * 0, (2, 2), (3, 1), 2),
    ),
    "pixels": lambda x: (F.pixel_shuffle(x[:, :, None], 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    compare(MOVES[name], X)


def test_fold_and_unfold():
    """nn.Fold crashed."""
    compare(
        lambda x: (
            F.fold(x.reshape(1, 8, 6), (4, 5), (2, 2), stride=(2, 2), padding=(1, 0)),
            F.unfold(x[None], 2, padding=1, stride=2, dilation=2),
        ),
        X,
    )


def put(x, indices, values, accumulate=False):
    return torch.ops.aten.index_put(x, indices, values, accumulate)


READS = {
    "negative index tensors": lambda x, i, j: (x[:, i], x[..., j], x.take(i), x.take(-1 - i)),
    "adjacent tensors": lambda x, i, j: (x[:, i, j], x[i % 2, j], x[None][:, :, j, i]),
    "tensors apart": lambda x, i, j: (x[i % 2, :, j], x[torch.tensor([1]), :, torch.tensor([-1])]),
    "selections": lambda x, i, j: (
        x.index_select(1, i.abs()),
        x.gather(1, j.abs()[None].expand(2, 3, 6)),
        x.gather(2, j.abs()[None]),
        F.embedding(j.abs(), x[0], padding_idx=0),
    ),
}
WRITES = {
    "index_put": lambda x, i, j: (put(x, [None, i], x[:, :3]), put(x, [j % 2], x[0, 0, 0] * 2)),
    "index_put, sums": lambda x, i, j: (
        put(x, [None, i, j], x[:, :1, :1], True),
        put(x, [i % 2, None, i], x[0, :3, :4], True),
        x.index_add(1, i.abs(), x[:, :3]),
    ),
    "masks": lambda x, i, j: (
        x.masked_fill(x > 0, 2),
        put(x, [x > 0], torch.tensor(1.5)),
        x.masked_scatter(x > 0, x * 2),
    ),
    "scatter": lambda x, i, j: (
        x.scatter(1, j.abs()[None], x[:, :3]),
        x.scatter(1, j.abs()[None].expand(2, 3, 6), 1.5),
        x.scatter(1, j.abs()[None], 3.0, reduce="multiply"),
        x.put(i, x[0, 0, :3], accumulate=True),
    ),
    "scatter_add": lambda x, i, j: (
        x.scatter_add(1, (j.abs() % 2)[None].expand(2, 3, 6), x),
        x.scatter_add(0, j.abs()[None].expand(1, 3, 2) % 2, x),
    ),
    "scatter_reduce": lambda x, i, j: [
        x.scatter_reduce(1, (j.abs() % 2)[None].expand(2, 3, 6), x, reduce, include_self=own)
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for own in (True, False)
    ],
}


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_indices(name):
    compare({**READS, **WRITES}[name], X, FRONT, BACK)


def test_constant_indices_outside_of_an_axis_are_refused():
    with pytest.raises(UnsupportedOperator, match=r"index 7; expected -4 to 3"):
        load_model(module_of(lambda x: x.take(torch.tensor([7]))), example_inputs=(seeded(4),))


def test_a_mask_whose_count_is_not_known_is_refused():
    with pytest.raises(UnsupportedOperator, match=r"aten::index\.Tensor .*shape of a result depends on values"):
        load_model(module_of(lambda x: x[x > 0]), example_inputs=(X,))


# ---- products -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.float16, torch.float64], ids=str)
def test_gemms_keep_their_type(dtype):
    left, right, start = ((seeded(*shape) * 9).to(dtype) for shape in ((3, 4), (4, 5), (3, 5)))
    compare(
        lambda a, b, c: (a @ b, torch.addmm(c, a, b, beta=2, alpha=3), a[0] @ b, torch.dot(a[0], a[1]), a[None] @ b),
        *(left, right, start),
    )


def test_linear_in_half_precision_without_bias_keeps_its_type():
    compare(torch.nn.Linear(5, 3, bias=False).half(), seeded(2, 5, dtype=torch.float16))


def test_gemms_of_a_batch():
    compare(
        lambda x, y, v: (
            torch.baddbmm(x, y, y, beta=0.5, alpha=2),
            torch.addbmm(x[0], y, y),
            torch.addmv(v, y[0], v),
            torch.addmm(x[0] / 0, y[0], y[0], beta=0),
            torch.einsum("bij,bjk->ik", x, y),
            torch.cdist(x, y),
            torch.cdist(x, y, 3.0),
            F.pdist(x[0]),
            F.bilinear(x[0], y[0], x),
        ),
        *(seeded(4, 4, 4), seeded(4, 4, 4) * 0.5, seeded(4)),
    )


ATTENTION = {
    "plain": lambda q, k, keep, more: F.scaled_dot_product_attention(q, k, k),
    "causal": lambda q, k, keep, more: F.scaled_dot_product_attention(q, k, k, is_causal=True),
    "rows that are masked completely": lambda q, k, keep, more: F.scaled_dot_product_attention(q, k, k, keep),
    "mask of floats": lambda q, k, keep, more: F.scaled_dot_product_attention(q, k, k, more, scale=0.3),
    "shared heads": lambda q, k, keep, more: F.scaled_dot_product_attention(q, k[:, :2], k[:, :2], enable_gqa=True),
}
OPERANDS = (
    seeded(2, 4, 8, 8),
    seeded(2, 4, 9, 8),
    (seeded(2, 1, 8, 9) > 0) & (torch.arange(8) > 1)[:, None],
    seeded(8, 9),
)


def test_attention():
    compare(lambda *operands: [function(*operands) for function in ATTENTION.values()], *OPERANDS, compiled=True)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_kernel(name):
    executable = tvm_tiling.compile(module_of(ATTENTION[name]), example_inputs=OPERANDS, cache=False)
    assert "attention" in [operator.kind for operator in executable.report().operators]


# ---- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_convolutions_keep_their_type(dtype):
    inputs = (seeded(2, 4, 7, 7), seeded(6, 2, 3, 3), seeded(5, 7, 3), seeded(6), seeded(4, 2, 3, 3))
    compare(
        lambda x, w, v, b, u: (
            F.conv2d(x, w, b, groups=2, dilation=2, padding="same"),
            F.conv2d(x[0], w, stride=2, groups=2),
            F.conv1d(x[0], v, padding=2),
            F.conv_transpose2d(x, u, stride=2, padding=1, output_padding=1),
        ),
        *(value.to(dtype) for value in inputs),
    )


def test_output_padding_that_dilation_allows():
    """TVM requires it to be less than the stride; PyTorch, less than the stride or the dilation."""
    compare(
        lambda x, w: (
            F.conv_transpose2d(x, w, stride=1, dilation=2, output_padding=1),
            F.conv_transpose2d(x, w, w[0, :, 0, 0], stride=(3, 1), dilation=(1, 4), padding=1, output_padding=(2, 3)),
            F.conv_transpose1d(x[..., 0], w[..., 0], padding=2, dilation=3, output_padding=2),
            F.conv_transpose3d(x[None], w[:2, None], dilation=2, output_padding=1),
        ),
        *(seeded(2, 4, 5, 4), seeded(4, 2, 3, 3)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_largest_elements_and_their_places(dtype):
    image = torch.randint(0, 9, (2, 3, 9, 10), generator=torch.Generator().manual_seed(0)).to(dtype)
    image[0, 0, 4, 5] = torch.nan
    compare(
        lambda x: (
            F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.max_pool2d(x, (2, 3), 2, 1, 1, True, return_indices=True),
            F.max_pool2d(x, 2, 1, 0, 2, return_indices=True),
            F.max_pool1d(x[0], 3, 2, 1, return_indices=True),
            F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
        ),
        image,
        compiled=True,
    )


def test_pools_are_undone():
    compare(lambda x: F.max_unpool2d(*F.max_pool2d(x, 3, 2, return_indices=True), 3, 2, output_size=(9, 10)), IMAGE)


IMAGE = seeded(2, 3, 9, 10)


def test_averages():
    """divisor_override was dropped; windows added by ceil_mode count the elements that they cover."""
    compare(
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, True),
            F.avg_pool2d(x, 3, 2, 1, True, False),
            F.avg_pool2d(x, 3, 2, 1, False, False),
            F.avg_pool2d(x, 2, divisor_override=3),
            F.avg_pool1d(x[0], 3, 2, 1),
            F.avg_pool3d(x[None], 2, ceil_mode=True, divisor_override=5),
            F.adaptive_avg_pool2d(x, (4, 5)),
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool1d(x[0], 5),
            F.avg_pool2d((x * 50).long(), 3, 2, 1, True, False),
        ),
        IMAGE,
    )


# ---- resampling -----------------------------------------------------------------------------------------------------

SIZES = {
    "whole factor": {"scale_factor": 2},
    "fraction": {"scale_factor": 1.7},
    "size": {"size": (4, 23)},
    "recomputed": {"scale_factor": 1.7, "recompute_scale_factor": True},
}


def test_nearest_at_any_scale():
    compare(
        lambda x: [F.interpolate(x, mode=m, **sizes) for sizes in SIZES.values() for m in ("nearest", "nearest-exact")],
        IMAGE,
    )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_between_pixels(mode):
    """A fractional scale_factor was read as the ratio of the sizes, antialias=True was dropped."""
    compare(
        lambda x: (
            *(F.interpolate(x, mode=mode, **sizes) for sizes in SIZES.values()),
            F.interpolate(x, size=(4, 23), mode=mode, align_corners=True),
            F.interpolate(x, size=(1, 23), mode=mode, align_corners=True),
            F.interpolate(x, scale_factor=0.6, mode=mode, antialias=True),
            F.interpolate(x, size=(4, 23), mode=mode, antialias=True, align_corners=True),
        ),
        IMAGE,
    )


def test_lines_and_volumes_between_elements():
    compare(
        lambda x: (
            F.interpolate(x[0], scale_factor=1.7, mode="linear"),
            F.interpolate(x[None], scale_factor=(1.7, 0.5, 2.0), mode="trilinear"),
            F.interpolate(x[None], scale_factor=(1.7, 0.5, 2.0)),
            F.interpolate(x[None], size=(1, 2, 3), mode="area"),
        ),
        IMAGE,
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode):
    compare(
        lambda x, grid: [
            F.grid_sample(x, grid, mode, padding, corners)
            for padding in ("zeros", "border", "reflection")
            for corners in (True, False)
        ],
        *(seeded(2, 3, 5, 6), seeded(2, 4, 7, 2) * 1.5),
    )


def test_grid_sample_of_volumes_and_grids():
    compare(
        lambda x, grid, theta: (
            F.grid_sample(x, grid, "bilinear", "reflection", False),
            F.grid_sample(x, grid, "nearest", "zeros", True),
            F.affine_grid(theta, (2, 3, 4, 5, 6), align_corners=False),
            F.affine_grid(theta[:, :2, 1:], (2, 3, 4, 1), align_corners=True),
        ),
        *(seeded(2, 3, 5, 6, 4), seeded(2, 4, 7, 2, 3) * 1.5, seeded(2, 3, 4)),
    )


def test_nearest_places_are_not_folded_into_a_gemm():
    """With one neighbour the sum looks like a product; folding reflected positions into it kept TVM busy for
    minutes."""
    from tvm_tiling.match.function import sum_of_products

    program = torch.export.export(
        module_of(lambda x, g: F.grid_sample(x, g, "nearest", "reflection", True)),
        (seeded(2, 3, 5, 5), seeded(2, 5, 5, 2)),
    )
    module = load_model(program).module
    functions = [f for v, f in module.functions.items() if v.name_hint.startswith("grid_sample")]
    assert functions
    for function in functions:
        with pytest.raises(UnsupportedOperator, match="computes indices of the reads"):
            sum_of_products(function, "grid_sample")


def test_grid_sample_reads_nothing_outside_of_the_image():
    big = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 3e9, 1e10, -1e10])
    grid = torch.stack([big, big.flip(0)], -1).reshape(1, 2, 4, 2)
    compare(lambda x, g: F.grid_sample(x, g, "nearest", "border", False), seeded(1, 1, 3, 3), grid)


def roi_align(image, boxes, size, scale, ratio):
    """Averages over bins of boxes by index tensors: a composition as in torchvision's Python code."""
    start = boxes[:, 1:3] * scale - 0.5
    extent = boxes[:, 3:5] * scale - 0.5 - start
    steps = (torch.arange(size * ratio) + 0.5) / (size * ratio)
    x = start[:, :1] + extent[:, :1] * steps
    y = start[:, 1:] + extent[:, 1:] * steps
    height, width = image.shape[-2:]
    inside = ((y > -1) & (y < height))[:, :, None] & ((x > -1) & (x < width))[:, None, :]
    y, x = y.clamp(min=0), x.clamp(min=0)
    top, left = y.long().clamp(max=height - 1), x.long().clamp(max=width - 1)
    low, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    dy, dx = (y - top).clamp(0, 1), (x - left).clamp(0, 1)
    of = boxes[:, 0].long()[:, None, None, None]
    channel = torch.arange(image.shape[1])[None, :, None, None]

    def at(rows, columns):
        return image[of, channel, rows[:, None, :, None], columns[:, None, None, :]]

    above = at(top, left) * (1 - dx)[:, None, None] + at(top, right) * dx[:, None, None]
    below = at(low, left) * (1 - dx)[:, None, None] + at(low, right) * dx[:, None, None]
    values = above * (1 - dy)[:, None, :, None] + below * dy[:, None, :, None]
    values = torch.where(inside[:, None], values, 0.0)
    return values.reshape(*values.shape[:2], size, ratio, size, ratio).mean((3, 5))


def test_roi_align_by_its_python_graph():
    boxes = torch.tensor([[0, 1.0, 2.0, 9.0, 14.0], [1, -3.0, 0.0, 30.0, 8.0], [1, 4.5, 4.5, 5.0, 5.0]])
    compare(lambda x, b: roi_align(x, b, 3, 0.5, 2), seeded(2, 3, 8, 8), boxes)


# ---- norms and tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
def test_norms(dtype):
    kinds = torch.nn
    layers = [
        kinds.BatchNorm2d(4),
        kinds.LayerNorm((5, 6)),
        kinds.GroupNorm(2, 4),
        kinds.InstanceNorm2d(4, affine=True),
    ]
    for layer in layers:
        for parameter in layer.parameters():
            torch.nn.init.uniform_(parameter, 0.5, 2)
    layers.append(kinds.RMSNorm(6))
    held = torch.nn.ModuleList(layers).to(dtype).eval()

    class Norms(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = held

        def forward(self, x):
            return [layer(x) for layer in self.layers]

    compare(Norms(), seeded(2, 4, 5, 6, dtype=dtype))


def test_a_gemm_and_what_is_padded():
    """A mask with a padded axis that is added to scores: positions of one type were compared with sizes of another."""
    compare(
        lambda x, y, m: (
            torch.baddbmm(F.pad(m, (0, 1)), x, y),
            x @ y + F.pad(m.masked_fill(m > 0, 2.0), (1, 0)),
            F.pad(x[..., 1:], (1, 0)) @ y,
            x @ F.pad(y[:, :3].relu(), (0, 0, 0, 1)),
        ),
        *(seeded(2, 3, 4), seeded(2, 4, 6), seeded(2, 3, 5)),
        compiled=True,
    )


def test_embedding_bag():
    indices = torch.randint(0, 9, (4, 5), generator=torch.Generator().manual_seed(0))
    compare(
        lambda i, w: (
            *(F.embedding_bag(i, w, mode=mode) for mode in ("sum", "mean", "max")),
            F.embedding_bag(i, w, padding_idx=2),
            F.embedding_bag(i[0], w, offsets=torch.tensor([0, 3, 3]), mode="max"),
        ),
        *(indices, seeded(9, 3)),
    )


def test_embedding_bag_by_offsets_that_only_the_run_knows():
    indices = torch.randint(0, 9, (20,), generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 4, 4, 20])
    compare(
        lambda i, w, o, s: (
            *(F.embedding_bag(i, w, o, mode=mode) for mode in ("sum", "mean", "max")),
            *(F.embedding_bag(i, w, o, mode=mode, padding_idx=3) for mode in ("sum", "mean", "max")),
            F.embedding_bag(i, w, o, include_last_offset=True),
            F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        ),
        *(indices, seeded(9, 3), offsets, seeded(20)),
    )


# ---- structure ------------------------------------------------------------------------------------------------------


class Shared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(seeded(4, 4))
        self.tied = self.weight
        self.part = torch.nn.Parameter(seeded(8, 4)[2:6])
        self.register_buffer("turned", seeded(4, 6)[:, ::2].t())
        self.register_buffer("empty", torch.zeros(0, 4))

    def forward(self, x):
        return x @ self.weight + x @ self.tied.t() + x @ self.part, self.turned, torch.cat([x, self.empty]), self.weight


def test_parameters_that_are_shared_views_or_not_contiguous():
    compare(Shared(), seeded(4, 4))


def test_what_programs_return():
    """An input, the same tensor twice, constants, None and numbers next to tensors."""
    compare(lambda x: (x, x, x * 2, torch.ones(3)), X)
    assert len(load_model(module_of(lambda x: (x * 2, None, 3)), example_inputs=(X,)).output_names) == 1


def test_regions_without_gradients_are_part_of_the_graph():
    def function(x):
        with torch.no_grad():
            y = x * 2
        with torch.enable_grad():
            return y + 1

    compare(function, X)


def test_higher_order_operators_are_refused_by_name():
    def function(x):
        return torch.while_loop(lambda y: y.sum() < 9, lambda y: (y + 1,), (x,))

    with pytest.raises(TilingError, match="unsupported operators: while_loop"):
        load_model(module_of(function), example_inputs=(X,))
