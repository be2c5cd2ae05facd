"""Saved models record the instructions that their kernels need, and a CPU that lacks some refuses them before they
run."""

from __future__ import annotations

import numpy as np
import pytest
from edited_file import edited
from networks import Network, attention
from test_plan import topk
from tvm import relax
from tvm.script import relax as R  # noqa: N812

import tvm_tiling as tt
from tvm_tiling.errors import HardwareError, ModelFormatError
from tvm_tiling.hardware.instruction_sets import EXTENSIONS, instruction_set_of_this_cpu
from tvm_tiling.model import instructions, saved
from tvm_tiling.model.cache import CompileCache

OWN = instruction_set_of_this_cpu()
pytestmark = pytest.mark.skipif(OWN is None, reason="the system does not tell what this CPU has")


@pytest.fixture
def executable():
    return tt.compile(Network((1, 17, 24)).module(attention), cache=False)


def lacking() -> str:
    """An extension that this CPU does not have."""
    return next(each.name for each in EXTENSIONS[OWN.arch] if each.name not in OWN.extensions)


def test_what_kernels_need_is_saved_and_this_cpu_has_it(executable, tmp_path):
    executable.save(tmp_path / "model.tar")
    needed = executable.variants[0].library.instructions
    assert needed.arch == OWN.arch and set(needed.extensions) <= set(OWN.extensions)
    assert set(tt.Hardware.detect().cpu.features) & {each.name for each in EXTENSIONS[OWN.arch]} <= set(
        needed.extensions
    )
    loaded = tt.load(tmp_path / "model.tar")
    assert loaded.variants[0].library.instructions == needed
    loaded.save(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "model.tar").read_bytes()


@pytest.mark.skipif(OWN is None or "avx512f" not in OWN.extensions, reason="needs a CPU with more than AVX2")
def test_a_model_for_a_described_cpu_needs_what_that_one_has(tmp_path):
    hardware = tt.Hardware.load("skylake-desktop-8c")
    executable = tt.compile(Network((1, 17, 24)).module(attention), target=hardware, cache=False)
    executable.save(tmp_path / "model.tar")
    extensions = tt.load(tmp_path / "model.tar").variants[0].library.instructions.extensions
    assert "avx2" in extensions and not [name for name in extensions if "512" in name]


def test_a_model_for_a_cpu_with_more_is_saved_and_not_run(monkeypatch, tmp_path):
    """Weights are packed here, by code for this CPU."""
    name, features = lacking(), instructions.llvm_get_cpu_features
    monkeypatch.setattr(instructions, "llvm_get_cpu_features", lambda target: [*features(target), name])
    hardware = tt.Hardware.load("skylake-desktop-8c" if OWN.arch == "x86_64" else "neoverse-v1-16c")
    executable = tt.compile(Network((1, 17, 24)).module(attention), target=hardware, cache=False)
    assert executable.lacking == name
    with pytest.raises(HardwareError, match=rf"this one lacks {name}; save\(\) or export\(\) it"):
        executable.run(np.zeros((1, 17, 24), np.float32))
    executable.save(tmp_path / "model.tar")
    with pytest.raises(HardwareError, match=f"this one lacks {name}"):
        tt.load(tmp_path / "model.tar")
    assert tt.load(tmp_path / "model.tar", foreign=True).lacking == name


@pytest.mark.parametrize("model", ["with a plan", "without"])
def test_a_cpu_without_them_refuses_the_file(model, executable, tmp_path, monkeypatch):
    path = tmp_path / "model.tar"
    (executable if model == "with a plan" else tt.compile(topk(), cache=False)).save(path)
    name = lacking()
    edited(path, lambda known: known["instructions"][0]["extensions"].append(name))
    monkeypatch.setattr(saved, "load", lambda *_, **__: pytest.fail("the library was loaded"))
    with pytest.raises(HardwareError) as refused:
        tt.load(path)
    assert str(refused.value) == (
        f"{path} was compiled for another CPU: this one lacks {name}; expected a model compiled on this CPU, or with "
        "target= a description of it"
    )


def test_a_file_for_another_architecture_is_refused(executable, tmp_path):
    executable.save(tmp_path / "model.tar")
    other = {"arch": "riscv64", "extensions": []}
    edited(tmp_path / "model.tar", lambda known: known.update(instructions=[other]))
    with pytest.raises(HardwareError, match="this one lacks the architecture riscv64"):
        tt.load(tmp_path / "model.tar")


@pytest.mark.parametrize("wrong", [[], [7], [{}], [{"arch": "x86_64", "extensions": [1]}], 7])
def test_an_invalid_record_is_refused(wrong, executable, tmp_path):
    executable.save(tmp_path / "model.tar")
    edited(tmp_path / "model.tar", lambda known: known.update(instructions=wrong))
    with pytest.raises(ModelFormatError, match="its description is corrupted"):
        tt.load(tmp_path / "model.tar")


def test_a_file_without_the_record_loads_as_before(executable, tmp_path):
    executable.save(tmp_path / "model.tar")
    edited(tmp_path / "model.tar", lambda known: known.pop("instructions"))
    loaded = tt.load(tmp_path / "model.tar")
    x = np.linspace(-1, 1, 17 * 24, dtype="float32").reshape(1, 17, 24)
    np.testing.assert_array_equal(loaded.run(x), executable.run(x))
    assert loaded.variants[0].library.instructions is None
    loaded.save(tmp_path / "again.tar")
    np.testing.assert_array_equal(tt.load(tmp_path / "again.tar").run(x), executable.run(x))


def test_the_cache_does_not_load_what_this_cpu_cannot_run(executable, tmp_path):
    """For example, a model compiled here for another CPU can be saved and exported."""
    cache = CompileCache(tmp_path / "cache")
    cache.put("a" * 64, executable)
    assert cache.get("a" * 64) is not None
    edited(cache.folder / f"{'a' * 64}.tar", lambda known: known["instructions"][0]["extensions"].append(lacking()))
    assert cache.get("a" * 64).lacking == lacking()


@pytest.mark.skipif(OWN is None or "avx512fp16" not in OWN.extensions, reason="needs a CPU with AVX512-FP16")
def test_element_wise_float16_is_the_same_with_and_without_its_arithmetic(tmp_path):
    """One operation in half precision is that in float32, rounded: also of what is not finite and of subnormals."""
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-5, 65504, 1, -3], np.float16)
    x = np.concatenate([np.repeat(special, 10), np.random.default_rng(0).normal(0, 99, 900).astype(np.float16)])[None]
    y = np.concatenate([np.tile(special, 10), np.random.default_rng(1).normal(0, 3, 900).astype(np.float16)])[None]
    results, code = [], []
    for hardware in (tt.Hardware.detect(), tt.Hardware.load("icelake-server-2c")):
        executable = tt.compile(half_arithmetic(), target=hardware, cache=False)
        results.append(executable.run(x, y))
        code.append("avx512fp16" in executable.variants[0].library.instructions.extensions)
    assert code == [True, False]
    np.testing.assert_array_equal(*results)


def half_arithmetic():
    """An element-wise model of float16."""
    x, y = (relax.Var(name, R.Tensor((1, 1000), "float16")) for name in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            scaled = builder.emit(relax.op.nn.relu(relax.op.multiply(relax.op.add(x, y), y)))
            one = relax.op.add(relax.op.abs(x), relax.const(1, "float16"))
            output = builder.emit_output(relax.op.subtract(relax.op.divide(scaled, one), y))
        builder.emit_func_output(output)
    return builder.get()
