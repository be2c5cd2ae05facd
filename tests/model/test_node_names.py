"""Operators of compiled models record the nodes that they come from through all passes."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from edited_file import edited
from hypothesis import given
from hypothesis import strategies as st
from named_networks import SHAPE, attention, quantised, squeezing
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.node_names import joined, numbers_of, variable_of, without_mark
from tvm_tiling.model import kernels as kernels_module
from tvm_tiling.model.accel.partition import RegionNames
from tvm_tiling.model.explain import explain_model
from tvm_tiling.plain_text import MOST_CHARACTERS, printable
from tvm_tiling.report.save import result_page
from tvm_tiling.report.timed_model import TimedModel, timed_from_dict

OF_SQUEEZING = {
    ("stem", "stem/relu"),
    ("pool",),
    ("fire1/squeeze", "fire1/squeeze/relu"),
    ("fire2/squeeze", "fire1/concat"),
    ("fire2/squeeze", "fire1/concat", "fire2/squeeze/relu"),
    ("fire1/expand1", "fire1/expand1/relu", "fire2/expand1", "fire2/expand1/relu"),
    ("fire1/expand3", "fire1/expand3/relu", "fire2/expand3", "fire2/expand3/relu"),
    ("fire2/concat",),
    ("last", "norm"),
    ("mean",),
    ("softmax",),
}


def nodes_of(model, **options):
    """Return the nodes of every operator of a model, in the order of the operators."""
    (explanation,) = explain_model(model, **options)
    return [operator.nodes for operator in explanation.operators]


def model(nodes, inputs, outputs, constants=(), functions=(), opset=17):
    """Return an ONNX model; inputs and outputs are (name, shape), bool if the shape is a single number."""
    kinds = {name: TensorProto.FLOAT if shape else TensorProto.BOOL for name, shape in (*inputs, *outputs)}
    infos = {n: helper.make_tensor_value_info(n, kinds[n], shape) for n, shape in (*inputs, *outputs)}
    graph = helper.make_graph(
        nodes,
        "g",
        [infos[name] for name, _ in inputs],
        [infos[name] for name, _ in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid("own", 1)] if functions else [])]
    return helper.make_model(graph, functions=list(functions), opset_imports=opsets, ir_version=9)


def weights(*names, shape=(8, 8)):
    return {name: np.full(shape, 0.1, "float32") for name in names}


# ---- which nodes -----------------------------------------------------------------------------------------------------


def test_operators_name_the_nodes_that_are_fused_and_that_share_a_kernel():
    given = squeezing()
    before = given.SerializeToString()
    found = nodes_of(given)
    assert given.SerializeToString() == before
    assert {nodes for nodes in found if nodes != ("stem",)} == OF_SQUEEZING  # before it, its image is transposed
    explanation = explain_model(squeezing())[0].to_dict()
    assert [operator["nodes"] for operator in json.loads(json.dumps(explanation))["operators"]] == [*map(list, found)]


def test_nodes_without_names_are_called_by_what_they_give():
    wanted = {tuple(f"{name}:0" for name in nodes) for nodes in OF_SQUEEZING}
    assert wanted <= set(nodes_of(squeezing(lambda name: "")))


def test_attention_is_called_by_its_gemms_first():
    found = nodes_of(attention())
    assert ("q", "k", "v") in found
    fused = next(nodes for nodes in found if "shares" in nodes)
    assert fused[:2] == ("scores", "mixed") and {"scale", "q/turned", "k/turned", "v/turned"} <= set(fused)


def test_what_is_folded_into_weights_is_after_its_convolution():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Mul", ["a", "s"], ["b"], "scale"),
        helper.make_node("Add", ["k", "k"], ["l"], "of_constants"),
        helper.make_node("Add", ["b", "l"], ["y"], "shift"),
    ]
    constants = {**weights("w", shape=(6, 4, 3, 3)), **weights("s", "k", shape=(6, 1, 1))}
    found = nodes_of(model(nodes, [("x", (1, 4, 8, 8))], [("y", (1, 6, 6, 6))], constants))
    assert ("conv", "scale", "shift") in found and not any("of_constants" in names for names in found)


def branches(condition):
    taken = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"], "then/product"), helper.make_node("Relu", ["a"], ["then"])],
        "taken",
        [],
        [helper.make_tensor_value_info("then", TensorProto.FLOAT, (4, 8))],
    )
    other = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["else"], "else/softmax")],
        "other",
        [],
        [helper.make_tensor_value_info("else", TensorProto.FLOAT, (4, 8))],
    )
    nodes = [
        helper.make_node("If", ["c"], ["b"], "choice", then_branch=taken, else_branch=other),
        helper.make_node("Sigmoid", ["b"], ["y"], "behind"),
    ]
    given = [("x", (4, 8)), *([("c", ())] if condition is None else [])]
    constants = {**weights("w"), **({} if condition is None else {"c": np.array(condition)})}
    return model(nodes, given, [("y", (4, 8))], constants)


def test_nodes_of_branches_keep_their_names():
    assert nodes_of(branches(True)) == [("then/product", "then", "behind")]
    names = [name for nodes in nodes_of(branches(None)) for name in nodes]
    assert sorted(names) == ["behind", "choice", "else/softmax", "then", "then/product"]


def test_all_iterations_of_a_loop_have_the_names_of_its_body():
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["m"], "body/product"),
            helper.make_node("Abs", ["m"], ["next"]),
            helper.make_node("Identity", ["on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, (4, 8)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, (4, 8)),
        ],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], "loop", body=body)
    looped = model([loop], [("x", (4, 8))], [("y", (4, 8))], {**weights("w"), "count": np.array(3)})
    (explanation,) = explain_model(looped)
    assert [(o.nodes, o.calls) for o in explanation.operators] == [(("body/product", "next"), 3)]


def test_nodes_of_functions_are_after_the_node_that_calls_them():
    inner = [helper.make_node("Erf", ["a"], ["e"], "erf"), helper.make_node("Mul", ["a", "e"], ["b"])]
    act = helper.make_function("own", "Act", ["a"], ["b"], inner, [helper.make_opsetid("", 17)])
    calls = [helper.make_node("MatMul", ["a", "w"], ["t"], "mm"), helper.make_node("Act", ["t"], ["b"], "act")]
    calls[1].domain = "own"
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    layer = helper.make_function("own", "Layer", ["a", "w"], ["b"], calls, opsets)
    nodes = [
        helper.make_node("Layer", ["x", "w1"], ["h"], "layer1", domain="own"),
        helper.make_node("Layer", ["h", "w2"], ["y"], "layer2", domain="own"),
    ]
    layers = model(nodes, [("x", (4, 8))], [("y", (4, 8))], weights("w1", "w2"), [layer, act])
    each = ("mm", "act/erf", "act/b")
    assert nodes_of(layers) == [tuple(f"layer{n}/{name}" for n in (1, 2) for name in each)]
    defined = [helper.make_node("Gelu", ["x"], ["y"], "gelu")]
    assert set(nodes_of(model(defined, [("x", (4, 8))], [("y", (4, 8))], opset=20))) == {("gelu",)}


def test_recurrent_layers_have_their_nodes():
    layer = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], "rnn", hidden_size=8)]
    constants = {**weights("w", shape=(1, 32, 4)), **weights("r", shape=(1, 32, 8))}
    found = nodes_of(model(layer, [("x", (5, 2, 4))], [("y", (5, 1, 2, 8))], constants))
    assert len(found) > 1 and set(found) == {("rnn",)}


def test_cells_that_are_rolled_into_a_layer_give_it_all_their_nodes():
    nodes, state = [], "h0"
    for step in range(3):
        nodes += [
            helper.make_node("MatMul", [f"x{step}", "w"], [f"i{step}"], f"step{step}/input"),
            helper.make_node("MatMul", [state, "r"], [f"s{step}"], f"step{step}/state"),
            helper.make_node("Add", [f"i{step}", f"s{step}"], [f"a{step}"], f"step{step}/add"),
            helper.make_node("Tanh", [f"a{step}"], [f"h{step + 1}"], f"step{step}/tanh"),
        ]
        state = f"h{step + 1}"
    nodes.append(helper.make_node("Softmax", [state], ["y"], "behind"))
    inputs = [("h0", (2, 8)), *((f"x{step}", (2, 8)) for step in range(3))]
    found = nodes_of(model(nodes, inputs, [("y", (2, 8))], weights("w", "r")))
    layer = {f"step{step}/{part}" for step in range(3) for part in ("state", "add", "tanh")}
    assert any(layer <= set(names) and "behind" not in names for names in found) and ("behind",) in found


def test_relay_has_the_names_that_an_importer_noted():
    kind = "Tensor[(2, 4), float32]"
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) {{
  %0 = nn.dense(%x, %w, units=4) /* ty={kind} span=block/dense:0:0 */;
  %1 = nn.softmax(%0) /* ty={kind} span=from_string:4:8 */;
  nn.relu(%1) /* ty={kind} span=block/relu:0:0 */
}}"""
    found = nodes_of(text.encode(), params={"w": np.zeros((4, 3), "float32")})
    assert ("block/dense",) in found and not any("from_string" in name for nodes in found for name in nodes)
    assert any(nodes[-1:] == ("block/relu",) for nodes in found)


# ---- accelerators ----------------------------------------------------------------------------------------------------


def test_regions_of_an_accelerator_are_called_by_their_first_node(tmp_path):
    exe = tt.compile(quantised(), target="vsim/vta")
    x = np.random.default_rng(0).uniform(-3, 3, (1, 16, 8, 8)).astype("float32")
    _, sim = exe.simulate(x)
    assert [region.name for region in sim.regions] == ["first", "second"]
    assert {"first", "second"} <= {row["name"] for row in sim.to_dict()["regions"]}
    sim.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event.get("args", {}).get("name") for event in events]
    assert {"first", "second"} <= set(named)
    rows = {row.name: row for row in exe.report().operators}
    assert rows["second"].nodes == ("second", "second/relu", "second/quantize")
    assert all(row.nodes for row in rows.values()) and "second/relu" in str(exe.report())
    tt.save_report(exe.report(), tmp_path / "page.html")
    assert "input/quantize" in (tmp_path / "page.html").read_text()  # on the CPU
    exe.save(tmp_path / "saved.tar")
    again = tt.load(tmp_path / "saved.tar")
    assert again.report().to_dict() == exe.report().to_dict()


def test_regions_of_one_name_are_numbered():
    renamed = quantised()
    for node in renamed.graph.node:
        if node.op_type == "Conv":
            node.name = "conv"
    exe = tt.compile(renamed, target="vsim/vta")
    assert [region.name for region in exe.program.regions] == ["conv", "conv/conv2d"]


@given(st.lists(st.tuples(st.sampled_from(["a", "a_1", "a_2", "a_1_2", "b"]), st.booleans()), max_size=30))
def test_no_two_regions_have_one_name(asked):
    names = RegionNames()
    found = [names.fresh(name, numbered=numbered) for name, numbered in asked]
    assert len(set(found)) == len(found)
    assert all(made.startswith(name) for (name, _), made in zip(asked, found, strict=True))


# ---- files and the cache ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled():
    exe = tt.compile(squeezing(), cache=False)
    exe.benchmark(np.zeros(SHAPE, "float32"), seconds=0.05)
    return exe


def test_reports_and_files_keep_the_nodes(compiled, tmp_path):
    text = str(compiled.report())
    assert "fire1/expand3 and 3 more " in text and text.splitlines()[0].endswith("kernel")
    compiled.save(tmp_path / "saved.tar")
    again = tt.load(tmp_path / "saved.tar")
    assert again.operators == compiled.operators
    timed = TimedModel(name="net", report=compiled.report(), machine={"cpu": "chip", "cores": 1})
    assert timed_from_dict(json.loads(json.dumps(timed.to_dict())), "net").report == compiled.report()


def test_files_with_other_nodes_than_names_are_refused(compiled, tmp_path):
    for nodes in (3, [3], "name", {"a": 1}):
        compiled.save(tmp_path / "saved.tar")
        path = edited(
            tmp_path / "saved.tar", lambda known, n=nodes: known["variants"][0]["operators"][0].update(nodes=n)
        )
        with pytest.raises(ModelFormatError, match="nodes of an operator are not names"):
            tt.load(path)


def test_a_model_equal_but_for_names_shares_kernels_and_reports_its_own(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    made, make = [], kernels_module.object_of
    monkeypatch.setattr(kernels_module, "object_of", lambda *args: made.append(args) or make(*args))
    first = tt.compile(squeezing())
    count = len(made)
    second = tt.compile(squeezing(lambda name: f"other/{name}"))
    assert count and len(made) == count and not second.from_cache
    assert [o.nodes for o in second.operators] == [tuple(f"other/{n}" for n in o.nodes) for o in first.operators]
    for exe in (first, second):
        exe.save(tmp_path / "saved.tar")
        assert tt.load(tmp_path / "saved.tar").operators == exe.operators
    assert first.variants[0].library.content == second.variants[0].library.content
    x = np.random.default_rng(0).uniform(-1, 1, SHAPE).astype("float32")
    np.testing.assert_array_equal(first.run(x), second.run(x))
    first.save(tmp_path / "first.tar")
    compiled.save(tmp_path / "compiled.tar")
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "compiled.tar").read_bytes()
    again = tt.compile(squeezing())
    assert again.from_cache and again.operators == first.operators


# ---- names that nobody vouches for -----------------------------------------------------------------------------------

HOSTILE = (
    "\x1b[31mred\x1b[0m\nsecond line",
    "<script>alert(1)</script>&amp;\"'",
    "long" * 5000,
    "\u202eright to left",
    "lv__n1__",
    "%s{0}[bold]$(x)",
    " ",
    "名前 🎉",
)


def test_any_name_is_one_line_of_printable_text_in_every_report():
    taken = itertools.cycle(HOSTILE)
    exe = tt.compile(squeezing(lambda _: next(taken)), cache=False)
    names = {name for operator in exe.operators for name in operator.nodes}
    assert {printable(name) for name in HOSTILE} - {""} <= names | {"lv__n1__"}
    assert all(name.isprintable() and len(name) < 2 * MOST_CHARACTERS for name in names)
    text = str(exe.report())
    assert len(text.splitlines()) == len(exe.operators) + 1 + len(exe.report().lines()) and "\x1b" not in text
    timed = TimedModel(name="net", report=exe.report(), machine={"cpu": "chip", "cores": 1})
    page = result_page(json.loads(json.dumps(timed.to_dict())), "net")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "\x1b" not in page


@given(st.text())
def test_a_printable_name_is_printable_and_stays_as_it_is(name):
    shown = printable(name)
    assert shown.isprintable() and printable(shown[:MOST_CHARACTERS]) == shown[:MOST_CHARACTERS].strip()
    if name.isprintable() and len(name) <= MOST_CHARACTERS:
        assert shown == name.strip()


NUMBERS = st.lists(st.integers(0, 10**6), max_size=6)


@given(NUMBERS, NUMBERS, st.integers(0, 99))
def test_numbers_in_names_of_variables_survive_what_tvm_appends(first, second, appended):
    def plain(numbers):
        return tuple(dict.fromkeys(numbers))

    names = [variable_of(first), variable_of(second)]
    assert numbers_of(names[0]) == plain(first) == numbers_of(f"{names[0]}{appended}" if names[0] else "")
    assert numbers_of(joined(*names)) == plain([*first, *second])
    assert without_mark(names[0]) == ("lv" if first else "")


def test_a_relax_module_without_a_list_of_names_has_none_whatever_its_variables_are_called():
    imported = load_model(squeezing()).module
    listed = {key: value for key, value in imported.attrs.items() if key != "tvm_tiling.nodes"}
    assert "tvm_tiling.nodes" in imported.attrs
    plain = type(imported)(dict(imported.functions), attrs=listed or None)
    assert set(nodes_of(plain)) == {()}
    odd = plain.with_attr("tvm_tiling.nodes", ["only <one>\x1b"])
    assert set(nodes_of(odd)) == {(), ("only <one>\\x1b",)}
    assert set(nodes_of(plain.with_attr("tvm_tiling.nodes", 3))) == {()}


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def residual_network():
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.bn1 = torch.nn.BatchNorm2d(8)

        def forward(self, x):
            return torch.relu(self.bn1(self.conv1(x)) + x)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = torch.nn.Sequential(Block(), Block())
            self.fc = torch.nn.Linear(8, 4)

        def forward(self, x):
            return self.fc(self.layer1(x).mean((2, 3)))

    return Net().eval(), torch.zeros(1, 8, 12, 12)


def test_pytorch_operators_have_the_paths_of_their_modules():
    torch = pytest.importorskip("torch")
    net, x = residual_network()
    found = nodes_of(torch.export.export(net, (x,)))
    conv = next(nodes for nodes in found if "layer1.1.conv1" in nodes and len(nodes) > 1)
    assert conv[:4] == ("layer1.0.conv1", "layer1.0.bn1", "layer1.0/add", "layer1.0/relu")
    assert ("fc",) in found


def test_torch_compile_keeps_the_paths(monkeypatch):
    torch = pytest.importorskip("torch")
    if "custom" not in torch.fx.proxy._COPY_META_FIELDS:
        pytest.skip("the tracers of this PyTorch keep nothing for their users")
    from tvm_tiling.model import torch_backend

    made, make = [], torch_backend.compile_imported
    monkeypatch.setattr(torch_backend, "compile_imported", lambda *a, **m: made.append(make(*a, **m)) or made[-1])
    net, x = residual_network()
    with torch.no_grad():
        torch.compile(net, backend="tvm_tiling")(x)
    found = [operator.nodes for exe in made for operator in exe.operators]
    assert any(nodes[:2] == ("layer1.0.conv1", "layer1.0.bn1") for nodes in found) and ("fc",) in found
