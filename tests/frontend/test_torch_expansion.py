"""Programs are expanded node by node only if that is equivalent: each is compared with eager PyTorch."""

from __future__ import annotations

import io

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import UnsupportedOperator  # noqa: E402
from tvm_tiling.frontend.torch.decompositions import rules  # noqa: E402
from tvm_tiling.frontend.torch.expansion import expanded  # noqa: E402
from tvm_tiling.frontend.torch.operators import CONVERTERS  # noqa: E402
from tvm_tiling.frontend.torch.refusals import full_name  # noqa: E402


class Function(nn.Module):
    """Return a function of tensors as a module, with weights that it may use."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, *tensors):
        return self.function(self, *tensors)


def in_place_chain(m, x):
    y = m.norm(m.conv(x))
    F.relu_(y)
    y += 1
    y.mul_(y)
    return y, F.silu(y, inplace=True) - 1


def names_of_the_whole(m, x):
    y = m.conv(x)
    other = F.dropout(y, 0.5, training=False)
    y.add_(1)
    return other * 2, y


def mask_of_constants(m, x):
    mask = x.new_zeros(1, 1, 6, 6)
    for number, place in enumerate((slice(0, 2), slice(2, 6))):
        mask[:, :, place, place] = number + 1
    before = mask * 2
    mask[..., 0].fill_(7)
    return x + mask, before + x


def constant_written_after_a_part_was_taken(m, x):
    mask = torch.zeros(6, 6)
    corner = mask[:2, :2]
    mask.add_(3)
    return x + mask, x[..., :2, :2] * corner


def written_through_a_view(m, x):
    y = m.conv(x)
    y[:, 0].zero_()
    return y


def read_through_a_view(m, x):
    y = m.conv(x)
    flat = y.flatten(1)
    y.relu_()
    return flat


def read_through_a_reshape_that_copies(m, x):
    y = m.conv(x).transpose(1, 2)
    flat = y.reshape(y.shape[0], -1)
    flat.relu_()
    return flat, y


def read_through_windows(m, x):
    y = torch.sin(x[0, 0])
    windows = y.unfold(0, 2, 1)
    y.mul_(3)
    return windows * 1


def read_through_broadcast(m, x):
    y = torch.sin(x)
    wide, _ = torch.broadcast_tensors(y, torch.ones(2, 1, 3, 6, 6))
    y.mul_(3)
    return wide + 0


def changes_its_input(m, x):
    x.mul_(2)
    return x + 1


def of_several_types(m, x):
    y = x.to(torch.float16) * 2
    y.add_(x.sum())
    return y


def moved_to_itself(m, x):
    y = torch.cos(x)
    same = y.to(torch.float32).contiguous()
    y.relu_()
    return same + 1


def into_a_split(m, x):
    a, b = torch.sin(x).chunk(2, dim=2)
    a.mul_(2)
    return a + b


def attended(m, x):
    return F.scaled_dot_product_attention(x, x, x) + F.layer_norm(x, (6,)) @ F.pad(x, (0, 0)).mT


EXPANDED = (in_place_chain, names_of_the_whole, mask_of_constants, moved_to_itself, attended)
LEFT = (
    written_through_a_view,
    read_through_a_view,
    read_through_windows,
    read_through_broadcast,
    changes_its_input,
    of_several_types,
    into_a_split,
)
EITHER = (constant_written_after_a_part_was_taken, read_through_a_reshape_that_copies)


def exported(function):
    torch.manual_seed(0)
    module = Function(function).eval()
    module.norm.running_mean.normal_()
    return module, torch.export.export(module, (torch.randn(2, 3, 6, 6),))


def as_expanded(program):
    return expanded(program, rules(), lambda target: full_name(target) in CONVERTERS)


@pytest.mark.parametrize("function", [*EXPANDED, *LEFT, *EITHER], ids=lambda function: function.__name__)
def test_results_are_those_of_pytorch(function):
    module, program = exported(function)
    x = torch.randn(2, 3, 6, 6)
    executable = tt.compile(program, cache=False)
    got = executable.run(x.clone())
    with torch.no_grad():
        wanted = module(x.clone())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for ours, theirs in zip(got if isinstance(got, tuple) else (got,), wanted, strict=False):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("function", EXPANDED, ids=lambda function: function.__name__)
def test_an_expanded_program_holds_only_operators_with_converters(function):
    made = as_expanded(exported(function)[1])
    assert made is not None
    calls = [node.target for node in made.graph.nodes if node.op == "call_function"]
    assert calls
    assert all("getitem" in str(call) or full_name(call) in CONVERTERS for call in calls)


@pytest.mark.parametrize("function", LEFT, ids=lambda function: function.__name__)
def test_what_is_seen_by_several_names_is_left_to_run_decompositions(function):
    assert as_expanded(exported(function)[1]) is None


def test_a_program_that_was_saved_means_the_same():
    _, program = exported(in_place_chain)
    content = io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    x = torch.randn(2, 3, 6, 6)
    ours, theirs = (tt.compile(p, cache=False).run(x) for p in (program, torch.export.load(content)))
    for a, b in zip(ours, theirs, strict=True):
        assert (a == b).all()


def test_nodes_keep_the_lines_that_they_come_from():
    made = as_expanded(exported(in_place_chain)[1])
    lines = [node.meta.get("stack_trace", "") for node in made.graph.nodes if node.op == "call_function"]
    assert all("test_torch_expansion.py" in line or "torch/nn" in line for line in lines)


def test_a_constant_of_open_size_is_refused():
    def selected(m, x):
        return torch.masked_select(torch.arange(6.0), torch.arange(6) > 2)

    with pytest.raises(UnsupportedOperator, match=r"aten::masked_select.*depends on values"):
        tt.compile(exported(selected)[1])


def test_combinations_are_those_of_pytorch_or_refused():
    """Some versions of PyTorch decompose them to a selection by a constant mask, which is refused."""
    module, program = exported(lambda m, x: torch.combinations(x[0, 0, 0], 1))
    x = torch.randn(2, 3, 6, 6)
    try:
        exe = tt.compile(program, cache=False)
    except UnsupportedOperator as error:
        assert "aten::masked_select" in str(error) and "depends on values" in str(error)
    else:
        assert (exe.run(x) == module(x)).all()
