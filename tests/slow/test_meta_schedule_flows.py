"""MetaSchedule's own flows with the plug-ins alone: TVM's unmodified tune_tir and tune_relax.

Searches are short. Their results are compiled by another process, give NumPy's results and are as fast as kernels of
tiling_schedule, within the noise of a shared machine.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, s_tir, te, tirx, topi
from tvm.s_tir import meta_schedule as ms

import tvm_tiling as tt
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.measure import Side, StopRule, paired
from tvm_tiling.runtime.threads import bind_workers, own_core
from tvm_tiling.tuning.metaschedule.annotation import picked, root_annotations
from tvm_tiling.tuning.metaschedule.operator_space import space_of

pytestmark = pytest.mark.slow
CPU = tt.Hardware.detect()
TRIALS = 16
FAILED = 1e9
SEEDED = 1.25e-3
PATIENCE = 900.0  # seconds: TVM's default builder imports all intrinsics first, on a possibly busy machine
NOISE = 0.8  # of the speed: what the best of a few noisy trials may lose
ELSEWHERE = """
import sys
import tvm
import tvm_tiling as tt
from tvm.s_tir import meta_schedule as ms

folder = sys.argv[1]
mod = tvm.ir.load_json(open(folder + "/operator.json").read())
database = ms.database.JSONDatabase(work_dir=folder)
schedule = ms.tir_integration.compile_tir(database, mod, tt.llvm_target())
tvm.compile(schedule.mod, target=tt.llvm_target()).export_library(folder + "/tuned.so")
"""


def without_nameless_handlers() -> None:
    """TVM recreates its loggers for each tuning, and fails on the handlers that pytest adds."""
    logging.getLogger("tvm.s_tir.meta_schedule").handlers.clear()


def layer(m: int = 384, k: int = 512, n: int = 640) -> tirx.PrimFunc:
    """relu(A B + bias)."""
    a, b, bias = (te.placeholder(shape, name=name) for shape, name in (((m, k), "A"), ((k, n), "B"), ((n,), "bias")))
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, bias, topi.nn.relu(topi.add(c, bias))])


def convolution(h: int = 28, ci: int = 64, co: int = 96) -> tirx.PrimFunc:
    x, kernels = te.placeholder((1, h, h, ci), name="X"), te.placeholder((3, 3, ci, co), name="K")
    return te.create_prim_func([x, kernels, topi.nn.conv2d_nhwc(x, kernels, 1, 1, 1)])


def tune(func: tirx.PrimFunc, folder: Path, **options):
    """Return the database of a short search."""
    given = {
        "max_trials_global": TRIALS,
        "num_trials_per_iter": TRIALS // 2,
        "space": tt.space_generator("llvm"),
        "cost_model": tt.TilingCostModel(),
        "builder": tt.local_builder(timeout_sec=PATIENCE),
        "runner": ms.runner.LocalRunner(timeout_sec=PATIENCE),
        "seed": 1,
    }
    without_nameless_handlers()
    return ms.tune_tir(func, tt.llvm_target(), work_dir=str(folder), **{**given, **options})


def config_of_record(record) -> Config | None:
    schedule = s_tir.Schedule(record.workload.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=True)
    (func,) = (f for f in schedule.mod.functions.values() if isinstance(f, tirx.PrimFunc))
    found = picked(root_annotations(func))
    return None if found is None else found[0]


def ran(database) -> list:
    """Return records of what could be built and run: for a failure MetaSchedule stores FAILED seconds."""
    records = database.get_all_tuning_records()
    return [record for record in records if record.run_secs and float(record.run_secs[0]) < FAILED]


def arguments(func: tirx.PrimFunc) -> list[tvm.runtime.Tensor]:
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e) for e in p.ty.shape) for p in func.params]
    inputs = [tvm.runtime.tensor(rng.standard_normal(shape).astype("float32")) for shape in shapes[:-1]]
    return [*inputs, tvm.runtime.empty(shapes[-1], "float32")]


def assert_right_and_fast(tuned, func: tirx.PrimFunc) -> None:
    """`tuned` gives the results of TVM's plain loops, as fast as the analytical kernel."""
    given = arguments(func)
    plain = tvm.compile(func, target="llvm")["main"]
    plain(*given)
    expected = given[-1].numpy()
    ours = tvm.compile(tt.tiling_schedule(func).mod, target=tt.llvm_target())["main"]
    own = [*given[:-1], tvm.runtime.empty(expected.shape, "float32")]
    tuned(*own)
    np.testing.assert_allclose(own[-1].numpy(), expected, rtol=1e-4, atol=1e-3)
    ours(*given)
    bind_workers()
    pair = paired(Side(lambda: tuned(*own), own_core), Side(lambda: ours(*given), own_core), StopRule(most_seconds=2))
    assert pair.ratio >= NOISE


@pytest.mark.parametrize(("make", "builder"), [(layer, ms.builder.LocalBuilder), (convolution, tt.local_builder)])
def test_tune_tir_and_compile_tir_in_another_process(make, builder, tmp_path):
    func = make()
    database = tune(func, tmp_path, builder=builder(timeout_sec=PATIENCE), num_trials_per_iter=TRIALS)
    records = ran(database)
    assert len(records) >= TRIALS // 2
    assert len({config_of_record(record) for record in records}) == len(records)
    (tmp_path / "operator.json").write_text(tvm.ir.save_json(func))
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(tmp_path)], check=True)
    assert_right_and_fast(tvm.runtime.load_module(str(tmp_path / "tuned.so"))["main"], func)


def test_rules_alone_with_what_metaschedule_adds_by_itself(tmp_path):
    """Default postprocessors and mutators, TVM's own cost model, and a builder that does not wait for intrinsics."""
    func = layer()
    space = ms.space_generator.PostOrderApply(sch_rules=tt.schedule_rules("llvm"))
    database = tune(func, tmp_path, space=space, cost_model="xgb")
    records = ran(database)
    assert len(records) >= TRIALS // 2
    assert None not in {config_of_record(record) for record in records}
    best = ms.tir_integration.compile_tir(database, func, tt.llvm_target())
    given = arguments(func)
    tvm.compile(best.mod, target=tt.llvm_target())["main"](*given)
    a, b, bias = (tensor.numpy() for tensor in given[:-1])
    np.testing.assert_allclose(given[-1].numpy(), np.maximum(a @ b + bias, 0), rtol=1e-4, atol=1e-3)


def test_a_search_starts_from_its_seeds(tmp_path):
    """Seeds with a choice outside of the neighbourhood: configurations near them are tried in the first round.

    TVM may measure again what its database already contains.
    """
    func = layer()
    space = space_of(func, CPU)
    columns = min(
        set(range(64, 640, 16)) - set(space.options["columns"]),
        key=lambda columns: space.predicted(with_columns(space.start, columns)),
    )
    seeds = {with_columns(config, columns): SEEDED for config in space.configs(80) if config.form == space.start.form}
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert tt.seed_database(database, func, seeds.items()) == len(seeds)
    tune(func, tmp_path, database=database, max_trials_global=TRIALS, num_trials_per_iter=TRIALS)
    tried = [config_of_record(r) for r in database.get_all_tuning_records() if float(r.run_secs[0]) != SEEDED]
    assert len(tried) == TRIALS
    near = {config for config in tried if config.form == space.start.form and config.choice("columns") == columns}
    assert near - set(seeds)


def with_columns(config: Config, columns: int) -> Config:
    return Config.of(config.op, config.form, {**dict(config.choices), "columns": columns})


def network() -> tvm.IRModule:
    """A 3 x 3 convolution with ReLU, flattened, followed by a dense layer."""
    rng = np.random.default_rng(0)
    kernels, weights = (
        relax.const(rng.uniform(-0.1, 0.1, shape).astype("float32")) for shape in ((32, 16, 3, 3), (32 * 196, 64))
    )
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 16, 14, 14), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, kernels, padding=1))))
            y = builder.emit(relax.op.reshape(y, (1, 32 * 196)))
            out = builder.emit_output(relax.op.matmul(y, weights))
        builder.emit_func_output(out)
    return builder.finalize()


def test_tune_relax_and_compile_relax(tmp_path):
    module, target = network(), tt.llvm_target()
    with target:
        lowered = relax.get_pipeline("zero")(module)
    without_nameless_handlers()
    database = ms.relax_integration.tune_relax(
        lowered,
        {},
        target,
        work_dir=str(tmp_path),
        max_trials_global=TRIALS,
        num_trials_per_iter=4,
        space=tt.space_generator("llvm"),
        cost_model=tt.TilingCostModel(),
        builder=tt.local_builder(timeout_sec=PATIENCE),
        runner=ms.runner.LocalRunner(timeout_sec=PATIENCE),
        seed=1,
    )
    forms = {config.op for record in ran(database) if (config := config_of_record(record)) is not None}
    assert forms == {"conv", "gemm"}
    tuned = relax.VirtualMachine(ms.relax_integration.compile_relax(database, module, target, {}), tvm.cpu())
    plain = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    x = tvm.runtime.tensor(np.random.default_rng(1).standard_normal((1, 16, 14, 14)).astype("float32"))
    np.testing.assert_allclose(tuned["main"](x).numpy(), plain["main"](x).numpy(), rtol=1e-3, atol=1e-3)


def test_tune_tir_on_a_simulated_accelerator(tmp_path):
    a, b = te.placeholder((96, 160), "int8", name="A"), te.placeholder((160, 200), "int8", name="B")
    r = te.reduce_axis((0, 160), name="k")
    c = te.compute((96, 200), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C")
    func = te.create_prim_func([a, b, c])
    machine = "vsim/neartile"
    without_nameless_handlers()
    database = ms.tune_tir(
        func,
        tvm.target.Target(machine),
        work_dir=str(tmp_path),
        max_trials_global=TRIALS,
        num_trials_per_iter=TRIALS // 2,
        space=tt.space_generator(machine),
        cost_model=tt.TilingCostModel(machine),
        builder=tt.simulator_builder(),
        runner=tt.simulator_runner(),
        seed=1,
    )
    cycles = {config_of_record(record): float(record.run_secs[0]) for record in ran(database)}
    workload = tt.GemmWorkload(m=96, k=160, n=200, dtype="int8", acc_dtype="int32")
    hardware = tt.Hardware.load("neartile")
    assert len(cycles) >= TRIALS // 2
    for config, found in cycles.items():
        assert found == simulate(workload_program(workload, hardware, config=config)).cycles
    assert min(cycles.values()) <= 1.05 * simulate(workload_program(workload, hardware)).cycles
