"""Execution plans: their contents, results equal to TVM's virtual machine, and models without one."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from edited_file import edited
from networks import Network, attention, residual_network
from onnx import TensorProto, helper, numpy_helper
from saving import integers, lstm
from tvm import relax
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, WorkloadError
from tvm_tiling.model import build, saved
from tvm_tiling.model.planned_variant import PlannedVariant
from tvm_tiling.model.variant import Variant
from tvm_tiling.runtime.plan import ARENA, ExecutionPlan, Lifetime, packed

pytestmark = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux"
)


def graph(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    """Return an ONNX model; inputs and outputs are (name, type, shape)."""
    made = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def passed_on() -> onnx.ModelProto:
    """Outputs that are an input, a constant, one tensor twice, and a view of another."""
    return graph(
        [
            helper.make_node("Identity", ["x"], ["a"]),
            helper.make_node("Identity", ["c"], ["b"]),
            helper.make_node("Exp", ["x"], ["d"]),
            helper.make_node("Identity", ["d"], ["e"]),
            helper.make_node("Reshape", ["d", "shape"], ["f"]),
            helper.make_node("ReduceSum", ["f"], ["g"], keepdims=0),
        ],
        [("x", TensorProto.FLOAT, (2, 6))],
        [
            ("a", TensorProto.FLOAT, (2, 6)),
            ("b", TensorProto.FLOAT, (3,)),
            ("d", TensorProto.FLOAT, (2, 6)),
            ("e", TensorProto.FLOAT, (2, 6)),
            ("f", TensorProto.FLOAT, (3, 4)),
            ("g", TensorProto.FLOAT, ()),
        ],
        [("c", np.arange(3, dtype="float32")), ("shape", np.array([3, 4]))],
    )


def looked_up() -> onnx.ModelProto:
    """Rows by computed indices, and integers divided by computed ones."""
    return graph(
        [helper.make_node("Gather", ["x", "i"], ["y"]), helper.make_node("Div", ["i", "j"], ["d"])],
        [("x", TensorProto.FLOAT, (5, 4)), ("i", TensorProto.INT64, (3,)), ("j", TensorProto.INT64, (3,))],
        [("y", TensorProto.FLOAT, (3, 4)), ("d", TensorProto.INT64, (3,))],
    )


def networks() -> dict[str, object]:
    return {
        "residual": Network((1, 3, 32, 32)).module(residual_network),
        "encoder": Network((1, 17, 24)).module(attention),
        "recurrent": lstm(),
        "integers": integers(),
        "passed on": passed_on(),
        "half": half(),
    }


def half() -> onnx.ModelProto:
    """float16 and bool."""
    return graph(
        [helper.make_node("Less", ["x", "c"], ["b"]), helper.make_node("Where", ["b", "c", "x"], ["y"])],
        [("x", TensorProto.FLOAT16, (7, 3))],
        [("b", TensorProto.BOOL, (7, 3)), ("y", TensorProto.FLOAT16, (7, 3))],
        [("c", np.array(0.25, "float16"))],
    )


def inputs_of(executable, seed: int = 0) -> list[np.ndarray]:
    rng, signature = np.random.default_rng(seed), executable.signature
    return [
        (rng.standard_normal(shape) * (1 if "float" in dtype else 9)).astype(dtype)
        for shape, dtype in zip(signature.input_shapes, signature.input_dtypes, strict=True)
    ]


def together(result) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


# ---- the plan and the virtual machine --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", networks())
def test_a_plan_gives_what_the_virtual_machine_gives(name, monkeypatch, tmp_path):
    model = networks()[name]
    planned = tt.compile(model, cache=False)
    monkeypatch.setattr(build, "_plan", lambda mod: (None, "it was asked for"))
    plain = tt.compile(model, cache=False)
    assert isinstance(planned.variants[0], PlannedVariant) and isinstance(plain.variants[0], Variant)
    planned.save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    for seed in range(3):
        given = inputs_of(planned, seed)
        wanted = together(plain.run(*given))
        for executable in (planned, loaded):
            found = together(executable.run(*given))
            assert [(a.dtype, a.shape) for a in found] == [(a.dtype, a.shape) for a in wanted]
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one, other)


def test_reports_have_the_memory_that_an_instance_allocates(monkeypatch, tmp_path):
    """Less than TVM's virtual machine allocates, which files of older releases state."""
    model = Network((1, 3, 32, 32)).module(residual_network)
    planned = tt.compile(model, cache=False)
    arena = planned.variants[0].library.plan.arena
    assert planned.report().memory.activations == arena > 0
    planned.save(tmp_path / "model.tar")
    with monkeypatch.context() as without:
        without.setattr(build, "_plan", lambda mod: (None, "it was asked for"))
        more = tt.compile(model, cache=False).report().memory.activations
    assert more > arena
    edited(tmp_path / "model.tar", lambda known: known["variants"][0]["memory"].update(activations=more))
    assert tt.load(tmp_path / "model.tar").report().memory.activations == arena


def test_outputs_share_no_memory_with_anything():
    executable = tt.compile(passed_on(), cache=False)
    x = np.ones((2, 6), "float32")
    first, second = executable.run(x), executable.run(x)
    wanted = [array.copy() for array in second]
    for array in (*first, x):
        array[...] = -1
    for array, copy in zip(second, wanted, strict=True):
        np.testing.assert_array_equal(array, copy)
    np.testing.assert_array_equal(executable.run(np.ones((2, 6), "float32"))[1], np.arange(3, dtype="float32"))


def test_inputs_of_any_strides_and_places():
    executable = tt.compile(Network((1, 17, 24)).module(attention), cache=False)
    x = inputs_of(executable)[0]
    wanted = executable.run(x)
    space = np.empty(x.nbytes + 4, np.uint8)[4:].view("float32").reshape(x.shape)
    space[...] = x
    other = np.asfortranarray(x)
    half_of = np.zeros((1, 17, 48), "float32")[:, :, ::2]
    half_of[...] = x
    for given in (space, other, half_of):
        np.testing.assert_array_equal(executable.run(given), wanted)


def test_what_kernels_refuse_is_said_as_the_virtual_machine_says_it(monkeypatch):
    planned = tt.compile(looked_up(), cache=False)
    monkeypatch.setattr(build, "_plan", lambda mod: (None, "it was asked for"))
    plain = tt.compile(looked_up(), cache=False)
    assert isinstance(planned.variants[0], PlannedVariant)
    x, right = np.ones((5, 4), "float32"), np.array([1, 2, 3])
    for i, j in ((np.array([0, 1, 7]), right), (np.array([0, -6, 1]), right), (right, np.array([1, 0, 2]))):
        said = []
        for executable in (planned, plain):
            with pytest.raises(WorkloadError) as refused:
                executable.run(x, i, j)
            said.append(str(refused.value))
        assert said[0] == said[1]
        np.testing.assert_array_equal(planned.run(x, right, right)[0], x[right])
        with pytest.raises(WorkloadError, match=r"out of range|division by zero"):
            tt.run_many([(planned, (x, right, right)), (planned, (x, i, j))] * 4)


def test_plans_and_machines_beside_each_other(monkeypatch):
    planned = tt.compile(Network((1, 3, 32, 32)).module(residual_network), cache=False)
    monkeypatch.setattr(build, "_plan", lambda mod: (None, "it was asked for"))
    plain = tt.compile(Network((1, 17, 24)).module(attention), cache=False)
    runs = [(planned, inputs_of(planned, seed)) for seed in range(5)] + [(plain, inputs_of(plain, 1))] * 3
    wanted = [executable.run(*given) for executable, given in runs]
    for _ in range(40):  # alternately at first, then concurrently
        for found, right in zip(tt.run_many(runs), wanted, strict=True):
            np.testing.assert_array_equal(found, right)


def test_runs_in_several_threads():
    executable = tt.compile(Network((1, 3, 32, 32)).module(residual_network), cache=False)
    given = [inputs_of(executable, seed) for seed in range(4)]
    wanted = [executable.run(*each) for each in given]
    wrong: list[int] = []

    def runs(number: int) -> None:
        for _ in range(50):
            if not np.array_equal(executable.run(*given[number]), wanted[number]):
                wrong.append(number)

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_process_runs_plans(tmp_path):
    tt.compile(Network((1, 3, 32, 32)).module(residual_network), cache=False).save(tmp_path / "model.tar")
    executable = tt.load(tmp_path / "model.tar")
    given = inputs_of(executable)
    wanted = executable.run(*given)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(executable.run(*given), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_times_of_operators():
    executable = tt.compile(Network((1, 3, 32, 32)).module(residual_network), cache=False)
    measured = executable.benchmark(*inputs_of(executable), seconds=0.1)
    known = {operator.name for operator in executable.operators}
    assert set(measured.operators) == known and sum(measured.operators.values()) < 5 * measured.median
    assert all(operator.measured_seconds is not None for operator in executable.report().operators)


# ---- what has no plan ------------------------------------------------------------------------------------------------


def topk() -> onnx.ModelProto:
    """A sort by TVM: elements of 64 bits."""
    return graph(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
            helper.make_node("TopK", ["wide", "k"], ["v", "i"]),
        ],
        [("x", TensorProto.FLOAT, (5, 4))],
        [("v", TensorProto.DOUBLE, (5, 2)), ("i", TensorProto.INT64, (5, 2))],
        [("k", np.array([2]))],
    )


def nonzero() -> onnx.ModelProto:
    return graph(
        [helper.make_node("NonZero", ["x"], ["i"])],
        [("x", TensorProto.FLOAT, (5, 4))],
        [("i", TensorProto.INT64, (2, None))],
    )


@pytest.mark.parametrize(("model", "said"), [(topk, "'topk' calls tvm.contrib.sort.topk"), (nonzero, "operator '")])
def test_what_needs_tvm_in_a_run_has_no_plan(model, said, tmp_path):
    executable = tt.compile(model(), cache=False)
    assert isinstance(executable.variants[0], Variant) and said in executable.variants[0].library.no_plan
    executable.save(tmp_path / "model.tar")
    loaded = tt.load(tmp_path / "model.tar")
    assert loaded.variants[0].library.no_plan == executable.variants[0].library.no_plan
    x = np.array([[0, 3, 2, 5]] * 5, "float32")
    for one, other in zip(together(loaded.run(x)), together(executable.run(x)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_kernel_that_writes_to_an_input_has_no_plan():
    from tvm.script import relax as R  # noqa: N812
    from tvm.script import tirx as T  # noqa: N812

    @T.prim_func(s_tir=True)
    def add_one(x: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("add"):
                v = T.axis.spatial(4, i)
                x[v] = x[v] + T.float32(1)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        function = builder.add_func(add_one, "add_one")
        with builder.dataflow():
            out = builder.emit_output(
                relax.op.call_tir_inplace(function, (x,), 0, out_ty=[relax.TensorType((4,), "float32")])
            )
        builder.emit_func_output(out)
    from tvm_tiling.model.extract_plan import NoPlan, extract_plan

    lowered = relax.get_pipeline("default")(builder.finalize())
    with pytest.raises(NoPlan, match="'add_one' writes to an input"):
        extract_plan(lowered)
    assert R is not None


# ---- plans as data ---------------------------------------------------------------------------------------------------


def residual_plan() -> ExecutionPlan:
    executable = tt.compile(Network((1, 3, 32, 32)).module(residual_network))
    return executable.variants[0].library.plan


def sizes_of_constants(plan: ExecutionPlan) -> list[int]:
    found: dict[int, int] = {}
    for tensor in plan.tensors:
        if tensor.place == 3:
            found[tensor.offset] = tensor.bytes
    return [found[number] for number in range(len(found))]


def test_a_plan_is_written_and_read():
    plan = residual_plan()
    plan.check(sizes_of_constants(plan))
    assert ExecutionPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_tensors_of_one_step_do_not_overlap():
    plan = residual_plan()
    for step in plan.steps:
        tensors = [plan.tensors[number] for number in step.arguments]
        spans = sorted({(each.offset, each.offset + each.bytes) for each in tensors if each.place == ARENA})
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_memory_is_packed_without_overlaps():
    rng = random.Random(0)
    for _ in range(60):
        steps = rng.randrange(1, 40)
        lives = []
        for _ in range(rng.randrange(0, 50)):
            first = rng.randrange(steps)
            lives.append(Lifetime(rng.choice([0, 1, 64, 65, 1000, 1 << 20]), first, rng.randrange(first, steps)))
        size, offsets = packed(lives)
        ends = [offset + life.bytes for offset, life in zip(offsets, lives, strict=True)]
        assert all(offset % 64 == 0 for offset in offsets) and max(ends, default=0) <= size
        for a in range(len(lives)):
            for b in range(a):
                if lives[a].first <= lives[b].last and lives[b].first <= lives[a].last:
                    assert ends[a] <= offsets[b] or ends[b] <= offsets[a] or not lives[a].bytes * lives[b].bytes


def numbers_in(plain, path=()):
    """Return the paths of all numbers in plain values."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            yield from numbers_in(value, (*path, key))
    elif isinstance(plain, list):
        for key, value in enumerate(plain):
            yield from numbers_in(value, (*path, key))
    elif isinstance(plain, int):
        yield path


def test_numbers_that_lead_out_of_memory_are_refused():
    """Each number of a plan in turn is changed; what check() accepts stays within the memory."""
    plan = residual_plan()
    constants = sizes_of_constants(plan)
    refused = 0
    for path in numbers_in(plan.to_dict()):
        for value in (-1, 1 << 40, 1 << 70, True, 7, "1", None):
            plain = plan.to_dict()
            place = plain
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            try:
                changed = ExecutionPlan.from_dict(plain)
                changed.check(constants)
            except (ValueError, TypeError, KeyError):
                refused += 1
                continue
            assert changed.arena >= plan.arena or changed.arena >= max(
                t.offset + t.bytes for t in changed.tensors if t.place == ARENA
            )
            room = {1: [t.bytes for t in changed.inputs], 2: [t.bytes for t in changed.outputs], 3: constants}
            assert all(t.bytes <= room[t.place][t.offset] for t in changed.tensors if t.place != ARENA)
    assert refused > 500


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(arena=64),
        lambda plan: plan["tensors"][1].__setitem__(1, 1 << 33),
        lambda plan: plan["steps"][0].__setitem__(0, "no_such_kernel"),
        lambda plan: plan["steps"][0][1].append(99999),
        lambda plan: plan["inputs"][0].__setitem__(0, [1]),
        lambda plan: plan.pop("results"),
        lambda plan: plan.update(parts=2),
        lambda plan: plan.update(parts=0),
        lambda plan: plan.update(parts=1 << 20),
    ],
)
def test_a_file_whose_plan_was_changed_is_refused(change, tmp_path):
    executable = tt.compile(Network((1, 3, 32, 32)).module(residual_network))
    path = tmp_path / "model.tar"
    executable.save(path)
    written = saved._digest

    def changed(known):
        if not seen:
            change(known["plans"][0])
        seen.append(1)
        return written(known)

    seen: list[int] = []
    saved._digest = changed
    try:
        executable.save(path)
    finally:
        saved._digest = written
    with pytest.raises(ModelFormatError, match="its description is corrupted"):
        tt.load(path)


# ---- loading without TVM ---------------------------------------------------------------------------------------------

LOADING = """
import resource, sys
def used():
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime
import numpy as np
import tvm_tiling as tt
before = used()
executable = tt.load(sys.argv[1])
x = np.load(sys.argv[2])
result = executable.run(x)
after = used()
executable.benchmark(x, seconds=0.05)
executable.report()
tt.run_many([(executable, x)] * 40)
loaded = {name.split(".")[0] for name in sys.modules}
assert not loaded & {"tvm", "tvm_ffi", "torch", "xgboost", "onnx", "scipy"}, loaded
np.save(sys.argv[3], result)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(after - before, int(status["VmHWM"].split()[0]) / 1024)
"""


def test_a_saved_model_runs_without_tvm(tmp_path):
    executable = tt.compile(Network((1, 3, 32, 32)).module(residual_network))
    executable.save(tmp_path / "model.tar")
    x = inputs_of(executable)[0]
    np.save(tmp_path / "x.npy", x)
    files = [str(tmp_path / name) for name in ("model.tar", "x.npy", "y.npy")]
    done = subprocess.run([sys.executable, "-c", LOADING, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), executable.run(x))
    seconds, mebibytes = map(float, done.stdout.split())
    assert seconds < 0.5 and mebibytes < 60  # 0.05 s and 40 MiB on a quiet machine


KEPT = """
import sys
import tvm_tiling as tt
executable = tt.compile(sys.argv[1], weights="int8")
loaded = {name.split(".")[0] for name in sys.modules}
assert executable.from_cache and not loaded & {"tvm", "tvm_ffi", "torch", "onnx"}, loaded
"""


def test_a_model_of_the_cache_is_found_without_tvm(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "product.onnx"
    weights = onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [value("x", onnx.TensorProto.FLOAT, ["rows", 64])],
        [value("y", onnx.TensorProto.FLOAT, ["rows", 64])],
        [weights],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    assert not tt.compile(path, weights="int8").from_cache
    done = subprocess.run([sys.executable, "-c", KEPT, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Options that no compilation accepts are refused even if the model is cached.
    with pytest.raises(tt.WorkloadError, match="block = 24"):
        tt.compile(path, block=24)
    with pytest.raises(tt.HardwareError, match="calibration has no effect"):
        tt.compile(path, weights="int8", calibration=[np.zeros((1, 64), np.float32)])


def test_a_saved_model_without_a_plan_brings_tvm(tmp_path):
    """In a process without other imports."""
    executable = tt.compile(topk(), cache=False)
    executable.save(tmp_path / "model.tar")
    given = "numpy.eye(5, 4, dtype='float32')"
    code = f"import numpy, sys, tvm_tiling as tt; print(tt.load(sys.argv[1]).run({given})[1].sum())"
    command = [sys.executable, "-c", code, str(tmp_path / "model.tar")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == executable.run(np.eye(5, 4, dtype="float32"))[1].sum()
