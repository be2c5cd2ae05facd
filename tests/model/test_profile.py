"""Profiles and graphs of real runs: steps in order, tasks within them on threads, counters, files for Perfetto."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import mmap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from networks import Network, residual_network
from tvm import relax, tirx

import tvm_tiling as tt
from tvm_tiling.errors import UnsupportedOperator, WorkloadError
from tvm_tiling.model.graph import graph_of
from tvm_tiling.runtime.plan import ARENA, CONSTANT, INPUT, OUTPUT, ExecutionPlan, PlannedTensor, Step, TensorType
from tvm_tiling.runtime.profiler import SOFTWARE, Counter, Profiler

FLOAT = "float32"


@pytest.fixture(scope="module")
def compiled():
    net = Network((1, 3, 64, 64))
    return tt.compile(net.module(residual_network), cache=False), net.arrays()


def test_steps_come_in_turn_and_tasks_lie_within_them(compiled):
    exe, arrays = compiled
    found = exe.profile(*arrays, runs=5)
    assert found.runs == 5 and found.seconds > 0 and found.unprofiled > 0
    names = {o.name for o in exe.operators}
    assert [step.operator for step in found.steps] == [step.operator for step in exe.report().graph]
    assert {step.operator for step in found.steps} <= names
    assert found.steps[0].start == 0 and found.steps[-1].end == found.seconds
    assert all(step.start <= step.end for step in found.steps)
    assert all(one.end <= two.start for one, two in itertools.pairwise(found.steps))
    for task in found.tasks:
        step = found.steps[task.step]
        assert step.start <= task.start <= task.end <= step.end and 0 <= task.thread < found.threads
    by_thread = found.busy()
    for thread in range(found.threads):
        own = [(start, end) for each, _, start, end in by_thread if each == thread]
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(own))  # sequential
    operators = found.operators()
    assert math.isclose(sum(each.seconds for each in operators.values()), sum(s.end - s.start for s in found.steps))
    assert all(0 < each.efficiency <= 1 for each in operators.values())
    assert found.nodes == {o.name: o.nodes for o in exe.operators}


def test_a_profile_does_not_change_results(compiled):
    exe, arrays = compiled
    before = exe.run(*arrays)
    exe.profile(*arrays, runs=2)
    np.testing.assert_array_equal(exe.run(*arrays), before)


def test_profiles_of_several_threads_wait_for_each_other(compiled):
    exe, arrays = compiled
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: exe.profile(*arrays, runs=2), range(8)))
    steps = {tuple(step.operator for step in each.steps) for each in found}
    assert len(steps) == 1
    for each in found:
        assert all(each.steps[task.step].start <= task.start <= task.end for task in each.tasks)


def test_a_profile_is_one_file_for_perfetto_and_a_page(compiled, tmp_path):
    exe, arrays = compiled
    found = exe.profile(*arrays, runs=2)
    found.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["tid"] == 0 for e in events) == len(found.steps)
    tt.save_report(found, tmp_path / "p.html", "net")
    assert "Threads over time" in (tmp_path / "p.html").read_text()
    assert "threads busy" in str(found) and found.steps[0].operator[:44] in str(found)


def test_a_saved_model_has_its_graph_and_profiles(compiled, tmp_path):
    exe, arrays = compiled
    exe.save(tmp_path / "m.tar")
    again = tt.load(tmp_path / "m.tar")
    assert again.report().graph == exe.report().graph != ()
    assert len(again.profile(*arrays, runs=1).steps) == len(again.report().graph)


def test_what_cannot_be_profiled_is_one_sentence(compiled, monkeypatch):
    exe, arrays = compiled
    with pytest.raises(WorkloadError, match="runs = 0; expected 1 or more"):
        exe.profile(*arrays, runs=0)
    with pytest.raises(WorkloadError, match="x0"):
        exe.profile()
    monkeypatch.setattr("tvm_tiling.runtime.profiler.first_library", lambda: None)
    with pytest.raises(WorkloadError, match="the run cannot be profiled: the first model of this process was compiled"):
        exe.profile(*arrays)


def test_a_simulated_model_is_refused():
    net = Network((4, 64))
    module = net.module(lambda n, x: n.emit(relax.op.matmul(x, n.c(64, 64))))
    simulated = tt.compile(module, target="vsim/neartile", calibration=[net.arrays()])
    with pytest.raises(UnsupportedOperator, match="use simulate, whose report has a timeline"):
        simulated.profile(*net.arrays())


def test_a_model_that_needs_tvm_in_a_run_is_profiled_without_a_graph():
    net = Network((64, 64))

    def body(net, x):
        found = net.emit(relax.op.topk(net.emit(relax.op.nn.relu(x)), 2))
        return net.emit(relax.TupleGetItem(found, 0))

    exe = tt.compile(net.module(body), cache=False)
    assert exe.report().graph == () and exe.variants[0].library.plan is None
    found = exe.profile(*net.arrays(), runs=3)
    assert found.steps and {step.operator for step in found.steps} <= {*(o.name for o in exe.operators), "runtime"}
    assert all(one.start <= two.start for one, two in itertools.pairwise(found.steps))
    assert all(0 <= step.start <= step.end for step in found.steps)


def test_a_model_of_dynamic_sizes_is_profiled_for_the_sizes_of_the_run():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tirx.Var("rows", "int64"), 64), FLOAT))
    with builder.function("main", [x]):
        with builder.dataflow():
            weights = relax.const(np.ones((64, 64), FLOAT))
            out = builder.emit_output(builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, weights)))))
        builder.emit_func_output(out)
    exe = tt.compile(builder.get(), cache=False)
    for rows in (3, 40):
        found = exe.profile(np.ones((rows, 64), FLOAT), runs=2)
        assert [step.operator for step in found.steps] == [step.operator for step in exe.report().graph]
    assert any("rows × 64 float32" in shape for step in exe.report().graph for shape in step.shapes)


def test_counters_are_those_of_the_thread_that_reads_them(compiled):
    """In up to three turns: beside other work, the system rarely counts no page at all."""
    turns = [_counted() for _ in range(3)]
    if turns[0][1] < 0:
        pytest.skip("this system counts nothing for its processes")
    assert all(0 < spent <= 1.1 * wall for wall, spent, _ in turns) and any(pages > 0 for _, _, pages in turns)


def _counted() -> np.ndarray:
    """Nanoseconds, those of the thread and new pages of some work."""
    profiler = Profiler(SOFTWARE)
    profiler.begin(0)
    before = profiler.sample()
    total = 0.0
    for n in range(200_000):
        total += n * 0.5
    touched = np.frombuffer(mmap.mmap(-1, 4 << 20), np.uint8)  # new pages, not those of an array before
    touched[:] = 1
    after = profiler.sample()
    profiler.end(np.zeros((0, 2, 3), np.int64))
    assert total and touched.any()
    return after - before if before[1] >= 0 else before


def test_counters_that_are_refused_are_none_and_reported():
    profiler = Profiler([Counter("nonsense", 999, 0)])
    profiler.begin(0)
    assert profiler.sample()[1] == -1
    assert profiler._ended(0)[1] != 0
    usual = Profiler()
    assert usual.counters or usual.refused


# ---- graphs of plans -------------------------------------------------------------------------------------------------


def tensor(place, offset, elements=16):
    return PlannedTensor((elements,), FLOAT, place, offset)


def plan(tensors, steps, writes):
    kind = TensorType((16,), FLOAT)
    return ExecutionPlan(
        arena=1024, inputs=(kind, kind), outputs=(kind,), tensors=tuple(tensors), steps=tuple(steps), results=(0,),
        writes=writes,
    )  # fmt: skip


def test_a_step_reads_from_whoever_wrote_its_bytes_last():
    tensors = [
        tensor(INPUT, 0),
        tensor(ARENA, 0),
        tensor(ARENA, 64),
        tensor(ARENA, 0, 32),  # both of the above, merged
        tensor(OUTPUT, 0),
        tensor(CONSTANT, 0),
        tensor(INPUT, 1),
    ]
    steps = [
        Step("a", (0, 5, 1)),
        Step("b", (6, 2)),
        Step("c_packed", (3, 1)),  # overwrites what a wrote
        Step("b", (1, 2)),
        Step("d", (3, 4)),
    ]
    writes = (("a", (2,)), ("b", (1,)), ("c_packed", (1,)), ("d", (1,)))
    found = graph_of(plan(tensors, steps, writes))
    assert [step.reads for step in found] == [(-1,), (-2,), (0, 1), (2,), (2, 3)]
    assert [step.operator for step in found] == ["a", "b", "c", "b", "d"]
    assert found[0].shapes == ("16 float32",)


def test_a_plan_of_an_earlier_version_has_no_graph():
    tensors = [tensor(INPUT, 0), tensor(OUTPUT, 0)]
    whole = plan(tensors, [Step("a", (0, 1))], (("a", (1,)),))
    assert graph_of(whole)
    plain = whole.to_dict()
    assert ExecutionPlan.from_dict(plain) == whole
    del plain["writes"]
    assert graph_of(ExecutionPlan.from_dict(plain)) == ()
    assert graph_of(dataclasses.replace(whole, writes=())) == ()


def test_the_graph_of_a_network_has_its_residual_edges(compiled):
    exe, _ = compiled
    steps = exe.report().graph
    assert any(read == -1 for step in steps for read in step.reads)
    assert all(read < number for number, step in enumerate(steps) for read in step.reads)
    readers = [sum(number in step.reads for step in steps) for number in range(len(steps))]
    assert readers[-1] == 0 and all(count >= 1 for count in readers[:-1])  # every result is read
    assert sum(count > 1 for count in readers) >= 2  # two shortcuts
    assert all(step.shapes for step in steps)
