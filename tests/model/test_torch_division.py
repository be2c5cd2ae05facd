"""torch.compile of graphs with unsupported operators, which PyTorch runs, and of graphs that change their inputs."""

from __future__ import annotations

import copy
import warnings

import pytest

torch = pytest.importorskip("torch")

from foreign_operator import foreign as unsupported  # noqa: E402

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import LeftToTorch, UnsupportedOperator  # noqa: E402
from tvm_tiling.model import torch_backend, torch_division  # noqa: E402
from tvm_tiling.model.torch_backend import backend  # noqa: E402
from tvm_tiling.model.torch_outputs import outputs_of  # noqa: E402

STRICT = {"fallback": False}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    torch.manual_seed(0)
    torch.compiler.reset()
    tt.torch_report(clear=True)


class Net(torch.nn.Module):
    """Three parts around two operators that PyTorch runs."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(12, 12), torch.nn.Linear(12, 5)
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x, image):
        y = unsupported(self.first(x).relu() + 2)
        # Operators run by PyTorch here depend on the strides of their inputs.
        channels = unsupported(self.conv(image).abs() + 1).permute(0, 2, 3, 1).reshape(-1)
        return self.last(y).softmax(-1), channels, y


def copies(values):
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]


def compare(function, *inputs, calls=2, **options):
    """Compiled and eager calls on equal inputs give equal tensors, strides and changed inputs; return the graphs'
    reports."""
    ours, eager = copies(inputs), copies(inputs)
    other = copy.deepcopy(function)
    compiled = torch.compile(function, backend=backend, options=options)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        for seed in range(calls):
            torch.manual_seed(seed)
            found = compiled(*ours)
            torch.manual_seed(seed)
            wanted = other(*eager)
            pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (found, wanted)), strict=True)
            for got, value in [*pairs, *zip(ours, eager, strict=True)]:
                torch.testing.assert_close(got, value, rtol=1e-4, atol=1e-5, equal_nan=True)
                assert got.stride() == value.stride()
    return tt.torch_report()


# ---- what is divided ------------------------------------------------------------------------------------------------


def test_parts_run_here_and_the_rest_in_pytorch():
    (report,) = compare(Net().eval(), torch.randn(4, 12), torch.randn(2, 3, 8, 8))
    assert (report.parts, report.why) == (2, "")
    (left,) = report.left
    assert (left.name, left.nodes, left.why) == ("elsewhere::foreign.default", 2, "tvm_tiling does not support it")
    assert len(left.lines) == 2 and all(line.startswith("test_torch_division.py:") for line in left.lines)
    assert report.served >= 7
    assert "elsewhere::foreign.default" in str(report) and "2 parts" in str(report)


def test_channels_last_goes_through_parts():
    image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    (report,) = compare(Net().eval(), torch.randn(4, 12), image)
    assert report.parts == 2


def test_a_warning_names_what_is_left_once():
    compiled = torch.compile(Net().eval(), backend=backend)
    inputs = torch.randn(4, 12), torch.randn(2, 3, 8, 8)
    with torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            compiled(*inputs)
    (warning,) = [entry for entry in said if entry.category is LeftToTorch]
    assert "elsewhere::foreign.default (2 nodes at test_torch_division.py:" in str(warning.message)


def test_nothing_is_left_where_that_is_an_error():
    with torch.no_grad(), pytest.raises(Exception, match=r"unsupported operators: .*foreign.*test_torch_division.py"):
        torch.compile(Net().eval(), backend=backend, options=STRICT)(torch.randn(4, 12), torch.randn(2, 3, 8, 8))


def test_parts_too_small_to_pay_are_left():
    (report,) = compare(lambda x, w: unsupported(x + 1) * 2 + unsupported(x @ w), torch.rand(3, 3), torch.rand(3, 3))
    assert report.parts == 1
    small = [left for left in report.left if "too few to be worthwhile" in left.why]
    assert {left.name.split(".")[0] for left in small} == {"aten::add", "aten::mul"}


def test_a_graph_of_which_no_part_pays_is_left_whole():
    (report,) = compare(lambda x: unsupported(x + 1) * 2, torch.rand(3))
    assert (report.parts, report.served) == (0, 0)
    assert "elsewhere::foreign.default" in report.why


def test_constants_of_a_part_need_no_part_of_their_own():
    def function(x, w):
        rows = torch.arange(4)
        mask = rows[:, None] >= rows[None, :]
        return torch.where(mask, unsupported(x @ w), 0.0) @ w + mask

    (report,) = compare(function, torch.rand(4, 4) + 1, torch.rand(4, 4) + 1)
    assert report.parts == 2


def test_several_results_of_one_node_cross_the_border():
    def function(x):
        a, b, c = torch.split(torch.softmax(x @ x, -1), [1, 2, 3], dim=1)
        values, places = (unsupported(a + 1) * x).topk(2, dim=1)
        return b @ x[:2], unsupported(c + 1), values, places.sum()

    (report,) = compare(function, torch.rand(6, 6))
    assert report.parts


def test_weights_that_change_are_noticed_by_parts_and_by_pytorch():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense, self.scale = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.rand(6) + 1)

        def forward(self, x):
            return self.dense(unsupported(self.dense(x).abs() + 1) * unsupported(self.scale))

    net, x = Scaled().eval(), torch.randn(3, 6)
    compiled = torch.compile(net, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        for change in (lambda: None, lambda: net.scale.mul_(2), lambda: net.dense.weight.add_(1), lambda: None):
            change()
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)


def test_every_shape_is_divided():
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), Unsupported(), torch.nn.Linear(16, 8)).eval()
    compiled = torch.compile(net, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        for batch in (4, 7, 1, 9):
            x = torch.randn(batch, 8)
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-5)
    assert all(report.parts == 2 for report in tt.torch_report())


class Unsupported(torch.nn.Module):
    def forward(self, x):
        return unsupported(x + 1)


def test_random_numbers_are_those_of_an_eager_run():
    def function(x):
        return torch.nn.functional.dropout((x @ x).relu() + 1, 0.5, True) @ x, torch.bernoulli(x.sigmoid()) @ x

    (report,) = compare(function, torch.randn(6, 6))
    assert report.parts and all("random" in left.why or "support" in left.why for left in report.left)


def test_autocast_does_not_cast_again_what_pytorch_runs():
    def function(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
            with torch.autocast("cpu", enabled=False):
                z = unsupported(y.float().abs() + 1) @ w
            return unsupported((z @ w).float().abs() + 1)

    with torch.autocast("cpu", torch.bfloat16):
        ours, eager = torch.randn(5, 5), torch.randn(5, 5)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", LeftToTorch)
            found, wanted = torch.compile(function, backend=backend)(ours, eager), function(ours, eager)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_what_does_not_compile_is_found_and_left(monkeypatch):
    compile_imported = torch_backend.compile_imported

    def failing(load, *args, **named):
        (model,) = load()
        if "tanh" in str(model.module):
            raise UnsupportedOperator("no rule for tanh")
        return compile_imported(lambda: [model], *args, **named)

    monkeypatch.setattr(torch_backend, "compile_imported", failing)
    reports = compare(lambda x: torch.relu(x @ x @ x).tanh() @ x @ x @ x, torch.rand(4, 4) / 4, calls=1)
    (report,) = reports
    assert report.parts == 2
    assert "no rule for tanh" in {left.why for left in report.left}
    assert report.served >= 4


def test_results_have_memory_of_their_own():
    def function(x, w):
        y = unsupported(x @ w)
        return y.view(-1), y.t() @ w, x.view(-1)

    x, w = torch.rand(3, 3) + 1, torch.rand(3, 3) + 1
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        flat, product, given = torch.compile(function, backend=backend)(x, w)
    before = product.clone()
    flat.zero_()
    assert torch.equal(product, before)
    given.zero_()
    assert x.sum() == 0, "a view of an input is one"


def test_inputs_of_types_that_kernels_lack_do_not_cost_the_rest():
    (report,) = compare(lambda x, z: (x @ x @ x, z.abs() + 1), torch.rand(4, 4), torch.randn(4, dtype=torch.complex64))
    assert report.parts == 1
    assert any("complex64" in left.why for left in report.left)


def test_sizes_that_depend_on_values_stay_with_pytorch():
    if not hasattr(torch._dynamo.config, "capture_dynamic_output_shape_ops"):
        pytest.skip("this release of PyTorch breaks graphs there")
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        (report,) = compare(lambda x: torch.nonzero(torch.relu(x @ x) > 0.5).sum() + (x @ x).sum(), torch.rand(4, 4))
    assert report.parts
    assert any(left.name == "aten::nonzero.default" and "depends on values" in left.why for left in report.left)


def test_a_cycle_of_parts_is_none():
    def function(x):
        y = x @ x
        z = unsupported(y) @ y
        return unsupported(z @ x) @ y @ z + x @ x @ y

    (report,) = compare(function, torch.rand(4, 4) + 1)
    assert report.parts >= 2


# ---- inputs that a graph changes ------------------------------------------------------------------------------------


def test_changed_inputs_are_written_back():
    def update(cache, x, places):
        cache.index_copy_(1, places, x)
        return cache.softmax(-1) @ x.transpose(1, 2)

    inputs = torch.zeros(2, 5, 8), torch.randn(2, 2, 8), torch.tensor([1, 3])
    (report,) = compare(update, *inputs, fallback=False)
    assert (report.parts, report.left) == (1, ())


def test_a_changed_input_is_returned_itself():
    x = torch.ones(3)
    with torch.no_grad():
        same, view, double = torch.compile(lambda x: (x.add_(1), x[1:], x * 2), backend=backend, options=STRICT)(x)
    assert same is x and x.tolist() == [2, 2, 2] and double.tolist() == [4, 4, 4]
    view.zero_()
    assert x.tolist() == [2, 0, 0]


def test_inputs_that_share_memory_change_together():
    def function(x, y):
        x.add_(1)
        return y * 2 + x

    compiled = torch.compile(function, backend=backend)
    with torch.no_grad():
        for share in (False, True, False):
            ours, eager = torch.zeros(6), torch.zeros(6)
            pairs = [(held, held.view(2, 3).view(-1) if share else held.clone()) for held in (ours, eager)]
            assert torch.equal(compiled(*pairs[0]), function(*pairs[1]))
            assert torch.equal(ours, eager)


def test_views_that_change_an_input_are_written_back():
    def function(x):
        rows = x.view(2, 6).t()[1:3]
        rows.mul_(3)
        return x.sum() + rows.sum(), rows

    assert compare(function, torch.rand(3, 4), fallback=False)


def test_a_shape_that_is_changed_in_place_is_refused():
    graph = torch.fx.symbolic_trace(lambda x: (x.t_() + 1,))
    with pytest.raises(UnsupportedOperator, match="changes the shape or the memory of 'x' in place"):
        outputs_of(graph, [torch.rand(3, 4)])


def test_statistics_of_training_are_written_back():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 2, 3)).train()
    other = copy.deepcopy(net)
    compiled = torch.compile(net, backend=backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftToTorch)
        for _ in range(3):
            x = torch.randn(4, 3, 9, 9)
            torch.testing.assert_close(compiled(x), other(x), rtol=1e-4, atol=1e-5)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, other.state_dict()[name], rtol=1e-4, atol=1e-5)
    assert tt.torch_report()[0].parts, "the convolutions run here"


def test_changes_in_inference_mode_are_written_back():
    with torch.inference_mode():
        x = torch.ones(4)
        got = torch.compile(lambda x: x.mul_(3) + 1, backend=backend)(x)
    assert got.tolist() == [4] * 4 and x.tolist() == [3] * 4


def test_results_have_pytorchs_strides():
    image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    conv = torch.nn.Conv2d(3, 4, 3).eval()
    assert compare(lambda x: (conv(x), (x * 2).transpose(1, 2), (x + 1)), image, fallback=False)


def test_both_sides_of_a_branch_are_computed_here():
    def function(x):
        chosen, other = torch.cond(
            x.sum() > 0, lambda x: (torch.sin(x) @ x, x + 1), lambda x: (torch.cos(x) @ x, x * 2), (x,)
        )
        return chosen.relu() + x @ x @ other

    (report,) = compare(function, torch.rand(3, 3))
    assert report.parts == 1 and not report.left
    with torch.no_grad():
        x = -torch.ones(3, 3)
        torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))


def test_a_branch_that_is_not_supported_stays_with_pytorch():
    def function(x):
        chosen = torch.cond(x.sum() > 0, lambda x: torch.bernoulli(x) @ x, lambda x: torch.cos(x) @ x, (x,))
        return chosen.relu() + x @ x @ x

    (report,) = compare(function, torch.rand(3, 3))
    assert report.parts and any(left.name == "cond" and "bernoulli" in left.why for left in report.left)


def test_reports_can_be_forgotten():
    compare(lambda x: x + 1, torch.rand(3))
    assert tt.torch_report(clear=True) and not tt.torch_report()


def test_halves_are_made_until_nothing_pays():
    program = torch.export.export(Net().eval(), (torch.randn(4, 12), torch.randn(2, 3, 8, 8))).run_decompositions()
    judgement = torch_division.judged(program, "here")
    for part in torch_division.divided(program, judgement):
        both = torch_division.halves(part, judgement)
        assert [node for half in both for node in half.nodes] == list(part.nodes)
