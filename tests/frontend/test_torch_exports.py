"""Typical exported programs: non-tensor arguments, keywords, nested arguments and results, sizes named by PyTorch,
changed inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tvm_tiling as tt  # noqa: E402
from tvm_tiling.errors import ModelFormatError, UnsupportedOperator, WorkloadError  # noqa: E402
from tvm_tiling.frontend import load_model  # noqa: E402


class Nested(torch.nn.Module):
    """Takes and returns containers, and takes non-tensor arguments."""

    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(4, 4)

    def forward(self, x, state, mode, *, extra=None, use_cache=True, scale=2):
        y = self.dense(x) * scale
        if mode == "add":
            y = y + state["a"] + state["b"][0]
        if extra is not None:
            y = y - extra
        return {"logits": y, "parts": [y[0], (y[1] * 2, None)]}, y.sum()


def nested_arguments():
    torch.manual_seed(0)
    state = {"a": torch.randn(4), "b": [torch.randn(2, 4)]}
    return (torch.randn(2, 4), state, "add"), {"extra": torch.randn(4), "use_cache": False, "scale": 3}


def leaves(outputs):
    first, total = outputs
    return [first["logits"], first["parts"][0], first["parts"][1][0], total]


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for result, value in zip(found, wanted, strict=True):
        np.testing.assert_allclose(result, value.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_tensors_inside_of_arguments_and_results_have_names():
    module = Nested().eval()
    (x, state, mode), keywords = nested_arguments()
    exe = tt.compile(torch.export.export(module, (x, state, mode), keywords), cache=False)
    assert exe.signature.input_names == ("x", "state.a", "state.b.0", "extra")
    assert exe.signature.output_names[:3] == ("0.logits", "0.parts.0", "0.parts.1.0")
    wanted, extra = leaves(module(x, state, mode, **keywords)), keywords["extra"]
    assert_same(exe.run(x, state["a"], state["b"][0], extra), wanted)
    assert_same(exe.run(x, extra=extra, state_a=state["a"], state_b_0=state["b"][0]), wanted)
    assert_same(exe.run(x, extra=extra, state=state), wanted)
    assert_same(exe.run(x=x, extra=extra, state={**state, "b": (state["b"][0], None)}), wanted)
    with pytest.raises(WorkloadError, match=r"input 'state.b.0' is missing"):
        exe.run(x, extra=extra, state={"a": state["a"]})
    with pytest.raises(WorkloadError, match=r"no input 'state.c'"):
        exe.run(x, extra=extra, state={**state, "c": x})


def test_a_dict_of_example_inputs_is_arguments_by_keyword():
    module = Nested().eval()
    (x, state, mode), keywords = nested_arguments()
    given = {"x": x, "state": state, "mode": mode, **keywords}
    exe = tt.compile(module, example_inputs=given, cache=False)
    assert exe.signature.input_names == ("x", "state.a", "state.b.0", "extra")
    wanted = leaves(module(**given))
    assert_same(exe.run(x=x, state=state, extra=keywords["extra"]), wanted)


def test_a_tensor_given_twice_is_two_inputs():
    class Differs(torch.nn.Module):
        def forward(self, x, y):
            return x * 2 - y

    one = torch.ones(3)
    exe = tt.compile(Differs(), example_inputs=(one, one), cache=False)
    assert exe.run(one * 3, one * 5).tolist() == [1, 1, 1]


def test_containers_of_other_libraries_have_names_too():
    @dataclass
    class Cache:
        keys: list

    torch.export.register_dataclass(Cache, serialized_type_name="tests.Cache")

    class Appends(torch.nn.Module):
        def forward(self, x, past):
            return {"out": x * 2, "past": Cache([torch.cat([key, x]) for key in past.keys])}

    x, past = torch.randn(1, 3), Cache([torch.randn(2, 3), torch.empty(0)])
    model = load_model(torch.export.export(Appends(), (x, past)))
    assert model.input_names == ("x", "past.keys.0", "past.keys.1")
    assert model.output_names == ("out", "past.keys.0", "past.keys.1")
    assert [shape for shape, _ in model.outputs] == [(1, 3), (3, 3), (1, 3)]


def test_names_that_pytorch_would_give_twice_are_distinguished():
    class Sums(torch.nn.Module):
        def forward(self, a_b, a, *rest, **options):
            return a_b * 2 + a["b"] + rest[0] * 3 + options["k"] * 5

    one = torch.ones(2)
    args, keywords = (one.clone(), {"b": one.clone()}, one.clone()), {"k": one.clone()}
    exe = tt.compile(torch.export.export(Sums(), args, keywords), cache=False)
    assert exe.signature.input_names == ("a_b", "a.b", "rest_0", "k")
    assert exe.run(a_b=one, a={"b": one * 10}, rest_0=one * 100, k=one * 1000).tolist() == [5312, 5312]


class Grown:
    """A container that computes when it is created, like caches of transformers."""

    def __init__(self, keys):
        self.keys = torch.cat([torch.tensor([]), keys], dim=-2)


def test_containers_that_compute_when_they_are_made():
    if Grown not in torch.utils._pytree.SUPPORTED_NODES:
        torch.utils._pytree.register_pytree_node(
            Grown,
            lambda held: ([held.keys], None),
            lambda values, _: Grown(values[0]),
            serialized_type_name="tests.Grown",
            flatten_with_keys_fn=lambda held: ([(torch.utils._pytree.MappingKey("keys"), held.keys)], None),
        )

    class Appends(torch.nn.Module):
        def forward(self, x, *, past):
            return {"total": past.keys.sum() + x.sum(), "past": Grown(torch.cat([past.keys, x]))}

    x, keys = torch.randn(1, 3), torch.randn(2, 3)
    exe = tt.compile(torch.export.export(Appends(), (x,), {"past": Grown(keys)}), cache=False)
    assert exe.signature.input_names == ("x", "past.keys")
    assert exe.signature.output_names == ("total", "past.keys")
    assert_same(exe.run(x, past={"keys": keys}), [keys.sum() + x.sum(), torch.cat([keys, x])])


# ---- sizes ----------------------------------------------------------------------------------------------------------


class Product(torch.nn.Module):
    def forward(self, x, weights, *, shift):
        return x @ weights["w"] + shift


def automatic():
    """A program all of whose sizes PyTorch names."""
    if not hasattr(torch.export.Dim, "AUTO"):
        pytest.skip("this release of PyTorch has no Dim.AUTO")
    auto = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    args, keywords = (torch.randn(2, 3), {"w": torch.randn(3, 5)}), {"shift": torch.randn(2, 5)}
    shapes = {"x": auto, "weights": {"w": auto}, "shift": auto}
    return torch.export.export(Product(), args, keywords, dynamic_shapes=shapes)


@pytest.mark.parametrize(
    "options",
    [
        {"dims": {"x[0]": 4, "x[1]": 6, "shift[1]": 7}},
        {"dims": {"shift[0]": 4, "weights.w[0]": 6, "weights.w[1]": 7}},
        {"batch": 4, "dims": {"x[1]": 6, "shift[1]": 7}},
    ],
)
def test_sizes_are_given_by_input_and_axis(options):
    exe = tt.compile(automatic(), cache=False, **options)
    assert exe.signature.input_shapes == ((4, 6), (6, 7), (4, 7))
    x, w, shift = (torch.randn(shape) for shape in exe.signature.input_shapes)
    assert_same([exe.run(x, w, shift)], [x @ w + shift])


def test_sizes_have_pytorchs_names_too():
    program = automatic()
    x, w, shift = (node.meta["val"] for node in program.graph.nodes if node.op == "placeholder")
    dims = {str(x.shape[0]): 4, str(x.shape[1]): 6, str(w.shape[1]): 7}
    assert load_model(program, dims=dims).input_shapes == ((4, 6), (6, 7), (4, 7))
    assert str(shift.shape[0]) in dims


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"'weights.w' \(.*is dynamic; expected batch=.*dims=\{'x\[0\]': \.\.\.\}"),
        ({"dims": {"x[0]": 4}}, r"is dynamic"),
        ({"dims": {"rows": 4}}, r"dims names 'rows'; expected 'x\[0\]', 'x\[1\]', 'weights.w\[0\]'"),
        ({"dims": {"x[0]": 4, "shift[0]": 5, "x[1]": 6, "shift[1]": 7}}, r"x\[0\] = 4.*contradict|shift\[0\] = 5"),
    ],
)
def test_sizes_that_are_missing_unknown_or_contradict_are_refused(options, words):
    with pytest.raises(ModelFormatError, match=words) as refused:
        load_model(automatic(), **options)
    assert "\n" not in str(refused.value)


def test_a_size_follows_from_one_that_is_computed_of_it():
    class Shifted(torch.nn.Module):
        def forward(self, x, y):
            return x[1:] + y

    rows = torch.export.Dim("rows", min=2, max=10)
    shapes = {"x": {0: rows + 1}, "y": {0: rows}}
    program = torch.export.export(Shifted(), (torch.randn(5), torch.randn(4)), dynamic_shapes=shapes)
    for dims in ({"rows": 7}, {"x[0]": 8}):
        assert load_model(program, dims=dims).input_shapes == ((8,), (7,))


# ---- what is changed ------------------------------------------------------------------------------------------------


def test_the_new_value_of_a_changed_input_is_a_further_output():
    class Writes(torch.nn.Module):
        def forward(self, cache, x):
            cache["k"][:, 1:2] = x
            return cache["k"].sum(1)

    program = torch.export.export(Writes(), ({"k": torch.zeros(2, 4)}, torch.ones(2, 1)))
    exe = tt.compile(program, cache=False)
    assert exe.signature.output_names[1:] == ("cache.k.updated",)
    held, x = np.full((2, 4), 2, "float32"), np.full((2, 1), 5, "float32")
    total, updated = exe.run(held, x)
    assert total.tolist() == [11, 11]
    assert updated.tolist() == [[2, 5, 2, 2]] * 2
    assert (held == 2).all(), "the caller's array is as it was"


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_all_unsupported_operators_are_named_at_once_with_source_lines():
    class Spectrum(torch.nn.Module):
        def forward(self, x):
            y = torch.linalg.eigh(x)[1]
            z = torch.nn.functional.dropout(torch.sqrt(y), 0.5, True)
            return torch.linalg.eigh(y + 1)[1], z, torch.nonzero(x).sum() + 1, y.relu(), torch.rand_like(x)

    with pytest.raises(UnsupportedOperator) as refused:
        tt.compile(torch.export.export(Spectrum(), (torch.ones(3, 3),)))
    said = str(refused.value)
    for words in (
        "unsupported operators: aten::",
        "aten::_linalg_eigh.default (nodes '_linalg_eigh' at test_torch_exports.py:",
        ", '_linalg_eigh_1' at test_torch_exports.py:",
        "aten::nonzero.default (nodes 'nonzero' at test_torch_exports.py:",
        "shape of a result depends on values",
        "dropout in training is random and not supported; expected a module in eval()",
        "aten::rand_like.default (nodes 'rand_like' at test_torch_exports.py:241): it draws random numbers; expected ",
    ):
        assert words in said
    for name in ("relu", "aten::add", "aten::sum", "getitem"):
        assert name not in said, "what can be translated, or only reads what cannot, is not named"
    assert "\n" not in said


def test_what_is_asserted_of_numbers_that_only_the_run_knows_is_checked_in_the_run():
    class Asserts(torch.nn.Module):
        def forward(self, x, lengths):
            torch._check(lengths.max().item() <= 4)
            torch._check(x.min().item() > -8)
            return x * 2

    tensors = torch.randn(2, 3), torch.tensor([3, 4])
    exe = tt.compile(torch.export.export(Asserts(), tensors))
    x, lengths = (tensor.numpy() for tensor in tensors)
    np.testing.assert_allclose(exe.run(x, lengths), x * 2)
    with pytest.raises(WorkloadError, match=r"_assert_scalar.*u0 <= 4"):
        exe.run(x, lengths + 1)
    with pytest.raises(WorkloadError, match=r"_assert_scalar.*0 < "):
        exe.run(x - 20, lengths)


def test_a_number_that_only_the_run_knows_is_refused_where_more_than_an_assertion_reads_it():
    class Adds(torch.nn.Module):
        def forward(self, x, lengths):
            longest = lengths.max().item()
            torch._check(longest <= 4)
            return x + longest

    with pytest.raises(UnsupportedOperator, match=r"_local_scalar_dense"):
        tt.compile(torch.export.export(Adds(), (torch.randn(2, 3), torch.tensor([3, 4]))))


class Moved(torch.nn.Module):
    """A module that moves its table to the device of its input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0).reshape(3, 2))

    def forward(self, index):
        self.table = self.table.to(device=index.device, dtype=torch.float32)
        return self.table[index]


class Increased(Moved):
    def forward(self, index):
        self.table = self.table + 1
        return super().forward(index)


def test_a_buffer_that_is_set_to_itself_is_not_changed():
    index = torch.tensor([2, 1])
    found = tt.compile(torch.export.export(Moved(), (index,), strict=False))(index)
    torch.testing.assert_close(found, Moved()(index))
    with pytest.raises(ModelFormatError, match="it changes 'table' at run time"):
        tt.compile(torch.export.export(Increased(), (index,), strict=False))
