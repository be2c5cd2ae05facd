"""Models compiled for an AArch64 CPU: their messages here, their files, and their results in an emulator."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from emulator import QEMU, SYSROOT, exported, needs_emulator

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))  # whose networks are used here

from networks import Network, attention, residual_network
from saving import integers, lstm
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import HardwareError, TilingError
from tvm_tiling.hardware.instruction_sets import host_arch
from tvm_tiling.target import hardware_of

pytestmark = pytest.mark.skipif(host_arch() != "x86_64", reason="cross-compiles on x86-64")
V1 = tt.Hardware.load("neoverse-v1")


def random_inputs(executable):
    rng = np.random.default_rng(1)
    signature = executable.signature
    return [
        rng.integers(0, 9, shape).astype(dtype) if "int" in dtype else rng.standard_normal(shape).astype(dtype)
        for shape, dtype in zip(signature.input_shapes, signature.input_dtypes, strict=True)
    ]


def dense(net, x):
    """Two matrix multiplications with weights large enough to be kept in blocks."""
    hidden = net.emit(relax.op.nn.relu(net.emit(relax.op.matmul(x, net.c(64, 96)))))
    return net.emit(relax.op.matmul(hidden, net.c(96, 70)))


MODELS = {
    "residual": (lambda: Network((1, 3, 32, 32)).module(residual_network), {}),
    "encoder": (lambda: Network((1, 17, 24)).module(attention), {}),
    "recurrent": (lstm, {}),
    "integers": (integers, {}),
    "bfloat16": (lambda: Network((1, 17, 24)).module(attention), {"precision": "bfloat16"}),
    "float16": (lambda: Network((1, 17, 24)).module(attention), {"precision": "float16"}),
    "int8 weights": (lambda: Network((5, 64)).module(dense), {"weights": "int8"}),
    "int4 weights": (lambda: Network((1, 64)).module(dense), {"weights": "int4"}),
}
TOLERANCES = {"bfloat16": 2e-2, "float16": 3e-3, "int8 weights": 1e-3, "int4 weights": 1e-3}


QUICK = (("neoverse-v1", "residual"), ("neoverse-v1", "recurrent"), ("neoverse-n1", "int4 weights"))
EVERY = [(preset, name) for preset in ("neoverse-n1", "neoverse-v1") for name in MODELS]
CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY]


@needs_emulator
@pytest.mark.parametrize(("preset", "name"), CASES)
def test_the_exported_library_gives_what_this_cpu_gives(name, preset):
    make, options = MODELS[name]
    there = tt.compile(make(), target=tt.Hardware.load(preset), cache=False, **options)
    here = tt.compile(make(), cache=False, **options)
    given = random_inputs(here)
    wanted = here.run(*given)
    for found, right in zip(
        exported(there).run(given), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        scale = max(1.0, float(np.abs(right).max()))
        np.testing.assert_allclose(found, right, atol=TOLERANCES.get(name, 1e-5) * scale)


@needs_emulator
@pytest.mark.slow
def test_int8_is_calibrated_here_and_runs_there():
    net = Network((1, 17, 24))
    module, given = net.module(attention), net.arrays()
    there = tt.compile(module, target=V1, precision="int8", calibration=given, cache=False)
    assert there.precision.precision == "int8" and there.precision.error is None
    (found,) = exported(there).run(given)
    wanted = tt.compile(module, cache=False).run(*given)
    assert np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)


@needs_emulator
def test_the_library_refuses_a_processor_with_less():
    model = exported(tt.compile(Network((1, 17, 24)).module(attention), target=V1, cache=False))
    with pytest.raises(TilingError) as refused:
        model.run([np.zeros((1, 17, 24), np.float32)], processor="cortex-a57")
    assert "the model was compiled for another CPU: this one lacks" in str(refused.value)
    assert "dotprod" in str(refused.value) and "\n" not in str(refused.value)


# ---- here ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def executable():
    return tt.compile(Network((1, 17, 24)).module(attention), target=V1, cache=False)


def test_it_is_refused_here_in_one_sentence(executable):
    assert executable.lacking == "the architecture aarch64 (this CPU is x86_64)"
    x = np.zeros((1, 17, 24), np.float32)
    for run in (executable.run, executable.benchmark, executable.session):
        with pytest.raises(TilingError) as refused:
            run(*([x] if run != executable.session else []))
        assert "\n" not in str(refused.value)
    with pytest.raises(
        HardwareError, match=r"lacks the architecture aarch64 .*; save\(\) or export\(\) it, and run it"
    ):
        executable.run(x, out=np.zeros((1, 17, 24), np.float32))
    with pytest.raises(HardwareError, match="the architecture aarch64"):
        tt.run_many([(executable, x)] * 2)


@needs_emulator
def test_the_file_of_another_machine(executable, tmp_path):
    path = tmp_path / "model.tar"
    executable.save(path)
    with pytest.raises(HardwareError) as refused:
        tt.load(path)
    assert str(refused.value) == (
        f"{path} was compiled for another CPU: this one lacks the architecture aarch64 (this CPU is x86_64); expected "
        "a model compiled on this CPU, or with target= a description of it"
    )
    there = tt.load(path, foreign=True)
    assert there.lacking == executable.lacking and there.signature == executable.signature
    there.save(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == path.read_bytes()
    header = (there.export(tmp_path / "net") / "net.h").read_text()
    assert "made for aarch64 with 4 cores" in header


@needs_emulator
def test_the_cache_keeps_what_is_for_another_cpu(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    first, second = (tt.compile(Network((1, 17, 24)).module(attention), target="neoverse-v1") for _ in range(2))
    assert (first.from_cache, second.from_cache) == (False, True)
    assert second.lacking == first.lacking


def test_without_a_cross_compiler_it_is_exported_and_not_saved(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CC_AARCH64", "no-such-compiler")
    executable = tt.compile(Network((1, 17, 24)).module(attention), target=V1)
    with pytest.raises(TilingError) as refused:
        executable.save(tmp_path / "model.tar")
    assert str(refused.value) == (
        f"{tmp_path}/model.tar cannot be written: the C compiler for aarch64, "
        "TVM_TILING_CC_AARCH64='no-such-compiler', does not exist; export() does not require one"
    )
    assert (executable.export(tmp_path / "net") / "kernels_0.o").stat().st_size


def test_a_choice_by_measuring_is_refused():
    net = Network((1, 17, 24))
    module, given = net.module(attention), net.arrays()
    with pytest.raises(
        HardwareError, match="precision = 'auto' times runs, but this CPU lacks the architecture aarch64"
    ):
        tt.compile(module, target=V1, precision="auto", calibration=given, cache=False)


def test_tuning_here_for_another_architecture_is_refused():
    with pytest.raises(HardwareError, match=r"which is x86_64, but neoverse-v1 is aarch64; .* runner='rpc://"):
        tt.tune(tt.GemmWorkload(m=8, n=8, k=8), V1, trials=1)


@pytest.mark.parametrize("field", ["mcpu", "cores"])
def test_costs_are_not_measured_here_for_another_cpu(field, tmp_path):
    here = tt.Hardware.detect()
    more = here.cpu.threads + 1
    other = {"mcpu": "another"} if field == "mcpu" else {"cores": more, "threads": more}
    machine = dataclasses.replace(here, cpu=dataclasses.replace(here.cpu, **other))
    product = tt.GemmWorkload(m=8, n=8, k=8)
    with pytest.raises(HardwareError, match="costs are measured on this CPU, which is"):
        tt.tune(product, machine, trials=1)
    with (
        tt.ShapeDatabase(str(tmp_path / "shapes.db")) as database,
        pytest.raises(HardwareError, match="costs are measured on this CPU, which is"),
    ):
        database.generate(target=machine, shapes=[product], limit=0)


def test_cpus_are_targets_by_name(tmp_path):
    (tmp_path / "mine.toml").write_text(V1.to_toml())
    assert hardware_of("neoverse-v1") == hardware_of(str(tmp_path / "mine.toml")) == V1
    assert hardware_of("vta") == hardware_of("vsim/vta")


@needs_emulator
def test_the_page_on_cross_compiling(tmp_path):
    """Commands of the documentation for the exported folder, on a model that its snippets created."""
    from documented import DOCS, blocks, onnx_bytes

    text = (DOCS / "cross_compiling.md").read_text()
    build, run = (line for line in text.splitlines() if line.startswith(("aarch64-linux-gnu-gcc", QEMU)))
    assert str(SYSROOT) in run and list(blocks(DOCS / "cross_compiling.md", "python"))
    there = tt.compile(onnx_bytes(), target=V1)
    there.export(tmp_path / "net")
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")
    image.tofile(tmp_path / "image.bin")
    for command in (build, run):
        subprocess.run(command, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    found = np.fromfile(tmp_path / "output_0.bin", np.float32)
    np.testing.assert_allclose(found, tt.compile(onnx_bytes()).run(image).ravel(), atol=1e-5)


EXACT = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
NEAR = {"exp": np.exp, "tanh": np.tanh, "sqrt": np.sqrt, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


@needs_emulator
def test_float16_operators_are_those_of_float32_rounded():
    """Native arithmetic of 16 bits (FEAT_FP16): within one unit in the last place, exact where IEEE 754 demands it."""
    builder, kind = relax.BlockBuilder(), relax.TensorType((4, 133), "float16")
    x, y = relax.Var("x", kind), relax.Var("y", kind)
    with builder.function("main", [x, y]):
        with builder.dataflow():
            found = [builder.emit(getattr(relax.op, name)(x, y)) for name in EXACT]
            found += [builder.emit(getattr(relax.op, name)(y)) for name in NEAR]
            result = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(result)
    there = tt.compile(builder.get(), target=V1, cache=False)
    rng = np.random.default_rng(2)
    left, right = rng.standard_normal((4, 133)).astype("float16"), rng.uniform(0.01, 9, (4, 133)).astype("float16")
    wide = left.astype("float32"), right.astype("float32")
    wanted = [make(*wide) for make in EXACT.values()] + [make(wide[1]) for make in NEAR.values()]
    found = exported(there).run([left, right])
    for name, value, exact in zip((*EXACT, *NEAR), found, wanted, strict=True):
        rounded = exact.astype("float16")
        assert value.dtype == np.float16
        allowed = np.spacing(np.abs(rounded)) if name in NEAR else 0
        assert (np.abs(value.astype("float32") - rounded.astype("float32")) <= allowed).all(), name
