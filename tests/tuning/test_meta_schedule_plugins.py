"""MetaSchedule's plug-ins: sampled configurations are valid wherever they are built, replayed, moved, checked and
seeded."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.decide.configs.neighbourhood import FORM
from tvm_tiling.tuning.metaschedule.annotation import PICK, SPACE, picked, plain, root_annotations
from tvm_tiling.tuning.metaschedule.lower_configs import lower_configs
from tvm_tiling.tuning.metaschedule.mutators import MutateConfig
from tvm_tiling.tuning.metaschedule.operator_space import space_of
from tvm_tiling.tuning.metaschedule.postprocs import VerifyConfig
from tvm_tiling.tuning.metaschedule.rules import TilingRule, likelihoods, sample
from tvm_tiling.tuning.metaschedule.seeds import places, seed_database, with_configs

CPU = tt.Hardware.detect()


def layer(m=33, k=127, n=65):
    """relu(A B + bias)."""
    a, b, bias = (te.placeholder(shape, name=name) for shape, name in (((m, k), "A"), ((k, n), "B"), ((n,), "bias")))
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, bias, topi.nn.relu(topi.add(c, bias))])


def convolution(h=9, ci=5, co=18, k=3):
    x, kernels = te.placeholder((1, h, h, ci), name="X"), te.placeholder((k, k, ci, co), name="K")
    return te.create_prim_func([x, kernels, topi.nn.conv2d_nhwc(x, kernels, 1, k // 2, 1)])


def softmax():
    x = te.placeholder((4, 9), name="x")
    return te.create_prim_func([x, topi.nn.softmax(x)])


def sampled(func, seed):
    schedule = s_tir.Schedule(func, seed=seed)
    (made,) = TilingRule(CPU).apply(schedule, schedule.get_child_blocks(schedule.get_sblock("root"))[0])
    return made


def config_in(schedule):
    return picked(root_annotations(schedule.mod["main"]))


def outputs(module, func, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(e) for e in p.ty.shape) for p in func.params]
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes[:-1]]
    out = tvm.runtime.empty(shapes[-1], "float32")
    module["main"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


@pytest.mark.parametrize("make", [layer, convolution])
def test_every_sampled_schedule_computes_the_operator_where_tvm_builds_it(make):
    func = make()
    expected = outputs(tvm.compile(func, target=tt.llvm_target()), func)
    configs = set()
    for seed in range(1, 7):
        schedule = sampled(func, seed)
        configs.add(config_in(schedule)[0])
        found = outputs(tvm.compile(schedule.mod, target=tt.llvm_target()), func)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert len(configs) > 1


def test_a_replayed_trace_is_the_same_config():
    schedule = sampled(layer(), 3)
    written = json.dumps(_numbers(schedule.trace.as_json()))
    again = s_tir.Schedule(layer())
    s_tir.schedule.Trace.apply_json_to_schedule(json.loads(written), again)
    assert config_in(again) == config_in(schedule)
    tvm.ir.assert_structural_equal(again.mod, schedule.mod)


def _numbers(value):
    if isinstance(value, str | int | float | type(None)):
        return value
    return value.value if hasattr(value, "value") else [_numbers(item) for item in value]


def test_the_first_value_of_every_choice_is_the_decision():
    space = space_of(layer(), CPU)
    schedule = s_tir.Schedule(layer())
    sample(schedule, space, picks={})
    assert config_in(schedule)[0] == space.start


def test_values_predicted_to_be_slow_are_sampled_rarely():
    space = space_of(layer(384, 512, 512), CPU)
    likely = likelihoods(space)
    for name, values in space.options.items():
        assert len(likely[name]) == len(values)
        assert sum(likely[name]) == pytest.approx(1)
        assert likely[name][0] >= 0.95 * max(likely[name])


def test_operators_that_no_rule_serves_are_left_alone():
    schedule = s_tir.Schedule(softmax())
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    (made,) = TilingRule(CPU).apply(schedule, block)
    assert config_in(made) is None
    assert lower_configs(made.mod).same_as(made.mod)


def test_operators_that_the_machine_does_not_support_are_named_with_the_reason(caplog):
    a, b, r = te.placeholder((33, 16)), te.placeholder((16, 20)), te.reduce_axis((0, 16))
    func = te.create_prim_func([a, b, te.compute((33, 20), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r))])
    schedule = s_tir.Schedule(func)
    TilingRule(tt.Hardware.load("vta")).apply(schedule, schedule.get_sblock("compute"))
    assert SPACE not in root_annotations(schedule.mod["main"])
    assert [record.getMessage() for record in caplog.records] == [
        "main: this package's rules do not apply: vta does not support operands of float32; expected int8"
    ]


def test_the_rule_samples_once_for_all_blocks():
    schedule = sampled(layer(), 1)
    before = schedule.mod["main"]
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        TilingRule(CPU).apply(schedule, block)
    tvm.ir.assert_structural_equal(schedule.mod["main"], before)


def test_lowered_functions_keep_their_names_and_attributes():
    func = layer().with_attr("global_symbol", "fused_layer")
    module = tvm.IRModule({"fused_layer": func})
    schedule = s_tir.Schedule(module)
    sample(schedule, space_of(func, CPU), "fused_layer", picks={})
    lowered = lower_configs(schedule.mod)["fused_layer"]
    assert str(lowered.attrs["global_symbol"]) == "fused_layer"
    assert SPACE not in root_annotations(lowered)


def test_plain_is_the_function_before_its_annotations():
    func = layer().with_attr("global_symbol", "main")
    tvm.ir.assert_structural_equal(plain(sampled(func, 2).mod["main"]), func)


@pytest.mark.parametrize("make", [layer, convolution])
def test_reductions_that_a_postprocessor_has_split_are_whole_again(make):
    """Like RewriteReductionBlock, one of MetaSchedule's defaults."""
    func = make().with_attr("global_symbol", "main")
    schedule = sampled(func, 2)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if schedule.get(block).init is not None:
            reduced = len([axis for axis in schedule.get(block).iter_vars if axis.iter_type == tirx.IterVar.CommReduce])
            schedule.decompose_reduction(block, schedule.get_loops(block)[-reduced])
    assert any(str(s).endswith("_init") for s in map(lambda b: schedule.get(b).name_hint, blocks_of(schedule)))
    tvm.ir.assert_structural_equal(plain(schedule.mod["main"]), func)


def blocks_of(schedule):
    return schedule.get_child_blocks(schedule.get_sblock("root"))


@pytest.mark.parametrize("damage", [{PICK + "columns": 99}, {SPACE: "{}"}, {SPACE: "no JSON"}])
def test_corrupted_annotations_are_refused_in_one_sentence(damage):
    annotations = {**dict(root_annotations(sampled(layer(), 1).mod["main"])), **damage}
    with pytest.raises(tt.DatabaseError, match="does not match its picks"):
        picked(annotations)


def test_a_move_changes_one_choice():
    func = layer(384, 512, 512)
    schedule, mutate = sampled(func, 5), MutateConfig(1)
    before = _places(schedule)
    for _ in range(12):
        moved = s_tir.Schedule(func)
        mutate.apply(schedule.trace).apply_to_schedule(moved, True)
        after = _places(moved)
        assert sum(after[name] != before[name] for name in before) == 1


def _places(schedule):
    annotations = root_annotations(schedule.mod["main"])
    return {str(name): int(value) for name, value in annotations.items() if str(name).startswith(PICK)}


def test_a_trace_without_choices_has_no_move():
    assert MutateConfig().apply(s_tir.Schedule(softmax()).trace) is None


def test_impossible_choices_are_refused_before_they_are_built():
    func = layer(384, 512, 512)
    space = space_of(func, CPU)
    refused = 0
    for seed in range(1, 40):
        schedule = sampled(func, seed)
        possible = space.config(config_in(schedule)[1]) is not None
        refused += not possible
        assert VerifyConfig(CPU).apply(schedule) == possible
    assert VerifyConfig(CPU).apply(s_tir.Schedule(softmax()))
    assert refused < 39


def test_samples_of_one_config_are_one_module():
    """Choices that the sampled algorithm does not have distinguish them until the check."""
    func = convolution(28, 64, 96)
    space = space_of(func, CPU)
    (foreign,) = {name for name in space.options if name not in (FORM, *space.choices(space.start))} & {
        "direct.band", "winograd.m"
    }  # fmt: skip
    made = []
    for place in (0, 1):
        made.append(s_tir.Schedule(func))
        sample(made[-1], space, picks={foreign: place})
    assert not tvm_ffi.structural_equal(made[0].mod, made[1].mod)
    assert all(VerifyConfig(CPU).apply(schedule) for schedule in made)
    assert tvm_ffi.structural_equal(made[0].mod, made[1].mod)
    assert config_in(made[1])[0] == space.start


def test_seeds_are_records_that_replay_to_their_configs():
    from tvm.s_tir import meta_schedule as ms

    func = layer(384, 512, 512)
    space = space_of(func, CPU)
    seeds = [(config, 1e-3 * (place + 1)) for place, config in enumerate(space.configs(5))]
    database = ms.database.MemoryDatabase()
    assert seed_database(database, func, seeds) == 5
    found = {}
    for record in database.get_all_tuning_records():
        schedule = s_tir.Schedule(record.workload.mod)
        record.trace.apply_to_schedule(schedule, False)
        found[config_in(schedule)[0]] = float(record.run_secs[0])
    assert found == dict(seeds)
    best = ms.tir_integration.compile_tir(database, func, tt.llvm_target())
    assert config_in(best)[0] == seeds[0][0]
    with pytest.raises(tt.DatabaseError, match="cost = None; expected measured seconds"):
        seed_database(database, func, [(seeds[0][0], None)])


def test_configs_from_elsewhere_become_options():
    space = space_of(layer(384, 512, 512), CPU)
    other = next(iter(space.configs()))
    odd = _changed(other, depth=77)
    wider = with_configs(space, [odd])
    assert wider.options["depth"][places(wider, odd)["depth"]] == 77
    assert wider.options[FORM] == space.options[FORM]


def _changed(config, **choices):
    return type(config).of(config.op, config.form, {**dict(config.choices), **choices})


def test_functions_without_a_config_cost_a_look():
    module = tvm.IRModule({"main": layer()})
    assert lower_configs(module).same_as(module)
    assert isinstance(module["main"], tirx.PrimFunc)
