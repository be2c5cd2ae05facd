"""This package's MetaSchedule builders and runners, each by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import s_tir, te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.tuning.metaschedule.local_builder import build
from tvm_tiling.tuning.metaschedule.operator_space import space_of
from tvm_tiling.tuning.metaschedule.rules import sample
from tvm_tiling.tuning.metaschedule.seeds import places

VTA = tt.Hardware.load("vta")


def product(m=64, k=96, n=80):
    a, b = te.placeholder((m, k), "int8", name="A"), te.placeholder((k, n), "int8", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r))
    return te.create_prim_func([a, b, c])


def annotated(func, space, config):
    schedule = s_tir.Schedule(func)
    sample(schedule, space, picks=places(space, config))
    return schedule.mod


def built(*modules):
    inputs = [ms.builder.BuilderInput(module, tvm.target.Target("vsim/vta")) for module in modules]
    return tt.simulator_builder().build(inputs)


def ran(path):
    assert path is not None
    (future,) = tt.simulator_runner().run([ms.runner.RunnerInput(path, "vsim", [])])
    assert future.done()
    return future.result()


def test_operands_without_names_get_different_ones():
    a, b, r = te.placeholder((64, 96), "int8"), te.placeholder((96, 80), "int8"), te.reduce_axis((0, 96))
    c = te.compute((64, 80), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r))
    program = tt.compile(te.create_prim_func([a, b, c]), target="vsim/vta").program
    assert [tensor.name for tensor in program.tensors] == ["placeholder", "placeholder_1", "compute"]


def test_a_candidates_seconds_are_the_cycles_of_its_config():
    func = product()
    space = space_of(func, VTA)
    configs = list(space.configs(3))
    for config, made in zip(configs, built(*(annotated(func, space, config) for config in configs)), strict=True):
        program = workload_program(
            tt.GemmWorkload(m=64, k=96, n=80, dtype="int8", acc_dtype="int32"), VTA, config=config
        )
        assert [float(seconds) for seconds in ran(made.artifact_path).run_secs] == [simulate(program).cycles]


def test_every_program_has_a_folder_of_its_own():
    """MetaSchedule deletes the folder that contains an artifact."""
    func = product()
    space = space_of(func, VTA)
    folders = {Path(str(made.artifact_path)).parent for made in built(*[annotated(func, space, space.start)] * 2)}
    assert len(folders) == 2
    assert all([path.name for path in folder.iterdir()] == ["candidate.vsim"] for folder in folders)


def test_what_is_not_a_program_is_a_failed_trial_with_its_reason(tmp_path):
    x = te.placeholder((4, 9), name="x")
    (softmax,) = built(tvm.IRModule({"main": te.create_prim_func([x, topi.nn.softmax(x)])}))
    assert softmax.artifact_path is None
    assert "vsim.engine" in str(softmax.error_msg)
    (tmp_path / "damaged.vsim").write_bytes(b"no program")
    assert "damaged.vsim" in str(ran(str(tmp_path / "damaged.vsim")).error_msg)


@pytest.mark.skipif(cc.get_cc() is None, reason="MetaSchedule's own export is linked by a C compiler when it is loaded")
def test_the_local_builders_function_writes_the_nest_of_a_config():
    a, b, r = te.placeholder((31, 48)), te.placeholder((48, 50)), te.reduce_axis((0, 48))
    func = te.create_prim_func([a, b, te.compute((31, 50), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))])
    space = space_of(func, tt.Hardware.detect())
    module = build(annotated(func, space, space.start), tt.llvm_target(), None)
    library = tvm.runtime.load_module(ms.builder.local_builder.default_export(module))
    x, y = (np.random.default_rng(0).random(shape, dtype="float32") for shape in ((31, 48), (48, 50)))
    out = tvm.runtime.empty((31, 50), "float32")
    library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
    np.testing.assert_allclose(out.numpy(), x @ y, rtol=1e-5)
