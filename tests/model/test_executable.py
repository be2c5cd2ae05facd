"""Executables: run, time, report, save and load, several threads, and errors for invalid input."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import Network, default, residual_network
from tvm import relax
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.errors import ModelFormatError, WorkloadError
from tvm_tiling.model import saved

SHAPE = (1, 3, 33, 33)


@pytest.fixture(scope="module")
def compiled():
    net = Network(SHAPE)
    mod = net.module(residual_network)
    x = net.arrays()[0]
    return tt.compile(mod, cache=False), x, default(mod, [x])


def test_runs_by_order_and_by_name(compiled):
    exe, x, want = compiled
    np.testing.assert_allclose(exe.run(x), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(exe.run(x0=x), want, rtol=1e-4, atol=1e-5)


def test_a_mapping_is_inputs_by_name(compiled):
    exe, x, want = compiled
    for result in (exe.run({"x0": x}), exe({"x0": x})):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
    assert exe.benchmark({"x0": x}, seconds=0).runs >= 5


def test_repr_reports_inputs_and_outputs(compiled):
    shown = repr(compiled[0])
    assert shown.startswith("<Executable: ") and "input x0: 1 x 3 x 33 x 33 float32" in shown and "outputs: " in shown


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1"])
def test_impossible_times_are_refused(compiled, seconds):
    with pytest.raises(WorkloadError, match=r"seconds = .*; expected a finite number of at least 0"):
        compiled[0].benchmark(compiled[1], seconds=seconds)


@pytest.mark.parametrize(
    ("arrays", "named", "said"),
    [
        (({"y0": np.zeros(SHAPE, "float32")},), {}, "the model has no input 'y0'; expected x0"),
        (({0: np.zeros(SHAPE, "float32")},), {}, "inputs by name: 0 is not a name; expected a string"),
        (({"x0": np.zeros(SHAPE, "float32")},), {"x0": 1}, "input 'x0' is given twice"),
        ((), {}, "input 'x0' is missing; the model takes 'x0'"),
        ((np.zeros(SHAPE, "float32"),) * 2, {}, "the number of inputs is 2; expected at most 1: 'x0'"),
        ((), {"y0": np.zeros(SHAPE, "float32")}, "the model has no input 'y0'; expected x0"),
        ((np.zeros(SHAPE, "float32"),), {"x0": np.zeros(SHAPE, "float32")}, "input 'x0' is given twice"),
        ((np.zeros((1, 3, 32, 33), "float32"),), {}, "has shape (1, 3, 32, 33), but the model was compiled for"),
        ((np.zeros(SHAPE, "float64"),), {}, "input 'x0' is float64, but the model takes float32"),
    ],
)
def test_bad_input_is_one_sentence(compiled, arrays, named, said):
    with pytest.raises(WorkloadError) as refused:
        compiled[0].run(*arrays, **named)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_the_report_names_every_operator_its_decision_and_its_share(compiled):
    exe, x, _ = compiled
    measured = exe.benchmark(x, seconds=0.05)
    assert measured.median > 0 and measured.runs >= 5
    assert measured.p50 == measured.median <= measured.p90 <= measured.p99 and measured.throughput > 0
    assert set(measured.to_dict()) >= {"p50", "p90", "p99", "throughput", "median", "spread", "runs", "operators"}
    report = exe.report()
    shares = [report.share(record) for record in report.operators]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)
    assert {record.name for record in exe.operators} <= {record.name for record in report.operators}
    decided = [record for record in report.operators if record.kind == "convolution"]
    assert decided and all(record.form and record.predicted_seconds and record.decision for record in decided)
    assert all(record.measured_seconds is not None for record in report.operators)
    assert str(report).count("\n") == len(report.operators) + 3
    outside = [record for record in report.operators if record.kind not in ("convolution", "gemm")]
    assert report.outside == pytest.approx(sum(report.share(record) for record in outside))
    assert f"outside convolutions and matrix multiplications: {report.outside:.1%} of the time" in str(report)


def test_eight_threads_at_once(compiled, tmp_path):
    exe, x, want = compiled
    exe.save(tmp_path / "model.tar")
    # Loaded again, so that every thread creates its virtual machine concurrently.
    again = tt.load(tmp_path / "model.tar")
    together, results, failures = threading.Barrier(8), [], []

    def work(number):
        try:
            together.wait()
            for turn in range(10):
                scale = np.float32(1 + (number + turn) % 3)
                results.append((scale, again.run(x * scale)))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(results) == 80
    expected = {scale: exe.run(x * scale) for scale in (np.float32(1), np.float32(2), np.float32(3))}
    np.testing.assert_allclose(expected[np.float32(1)], want, rtol=1e-4, atol=1e-5)
    for scale, result in results:
        np.testing.assert_array_equal(result, expected[scale])


def test_saved_and_loaded(compiled, tmp_path):
    exe, x, _ = compiled
    exe.save(tmp_path / "model.tar")
    again = tt.load(tmp_path / "model.tar")
    np.testing.assert_array_equal(again.run(x), exe.run(x))
    assert again.operators == exe.operators and again.signature == exe.signature
    again.save(tmp_path / "again.tar")
    np.testing.assert_array_equal(tt.load(tmp_path / "again.tar").run(x), exe.run(x))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.tar", "model.tar"]


def test_running_saving_and_loading_print_nothing(compiled, tmp_path, capfd):
    exe, x, _ = compiled
    exe.run(x)
    exe.save(tmp_path / "model.tar")
    again = tt.load(tmp_path / "model.tar")
    again.run(x)
    again.save(tmp_path / "again.tar")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("runtime_only", ["0", "1"])
def test_loading_needs_no_part_that_reads_decides_or_schedules(compiled, tmp_path, runtime_only):
    """Nor is TVM's compiler: with TVM_USE_RUNTIME_LIB its library is not loaded."""
    exe, x, _ = compiled
    exe.save(tmp_path / "model.tar")
    np.savez(tmp_path / "x.npz", x=x, want=exe.run(x))
    code = (
        "import sys, numpy as np, tvm_tiling as tt\n"
        "exe = tt.load('model.tar')\n"
        "with np.load('x.npz') as arrays: np.testing.assert_array_equal(exe.run(arrays['x']), arrays['want'])\n"
        "loaded = {'.'.join(name.split('.')[1:3]) for name in sys.modules if name.startswith('tvm_tiling.')}\n"
        "parts = {name for name in loaded if name.split('.')[0] in ('frontend', 'match', 'schedules', 'schedule')}\n"
        "parts |= loaded & {f'model.{n}' for n in ('compile', 'build', 'pipeline', 'operators', 'dataflow', 'cache')}\n"
        "assert not parts and not {'onnx', 'tflite'} & set(sys.modules), parts\n"
    )
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": runtime_only}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def tar(**members: bytes) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name.replace("_", ".").replace("=", "_"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return memory.getvalue()


def description(**fields) -> bytes:
    return json.dumps({"format": "tvm-tiling-executable", "version": 2, "libraries": [], **fields}).encode()


@pytest.mark.skipif(cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux")
def test_a_model_is_linked_once_with_the_libraries_that_kernels_need(monkeypatch):
    calls, create = [], cc.create_shared

    def shared(output, objects, **options):
        calls.append((objects, options))
        return create(output, objects, **options)

    monkeypatch.setattr(cc, "create_shared", shared)
    net = Network((2, 3))
    module, x = net.module(lambda net, x: relax.op.exp(x)), net.arrays()[0]
    np.testing.assert_allclose(tt.compile(module, cache=False).run(x), np.exp(x), rtol=1e-5)
    ((objects, options),) = calls
    assert "-nodefaultlibs" in options["options"] and "-lm" in objects

    def without_names(output, objects, **options):
        if options["options"]:
            raise RuntimeError("Compilation error:\ncannot find -lgcc")
        return create(output, objects, **options)

    monkeypatch.setattr(cc, "create_shared", without_names)
    np.testing.assert_allclose(tt.compile(module, cache=False).run(x), np.exp(x), rtol=1e-5)


def test_without_a_c_compiler_a_model_is_saved_as_objects(tmp_path, monkeypatch):
    monkeypatch.setattr(cc, "get_cc", lambda: None)
    net = Network(SHAPE)
    exe, x = tt.compile(net.module(residual_network), cache=False), net.arrays()[0]
    exe.save(tmp_path / "model.tar")
    with tarfile.open(tmp_path / "model.tar") as archive:
        assert archive.getnames()[1] == "model_0.objects"
    loaded = tt.load(tmp_path / "model.tar")
    np.testing.assert_array_equal(loaded.run(x), exe.run(x))
    loaded.save(tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "model.tar").read_bytes()


@pytest.mark.parametrize("objects", [b"x" * 999, tar(**{"0_o": b"no object"}), tar()])
def test_invalid_objects_are_refused(objects, tmp_path):
    libraries = [hashlib.sha256(objects).hexdigest()]
    members = {"model_json": description(libraries=libraries), "model=0_objects": objects, "constants_bin": b""}
    (tmp_path / "bad.tar").write_bytes(tar(**members))
    with pytest.raises(
        ModelFormatError, match=r"bad\.tar: its (library cannot be loaded here|description is corrupted)"
    ):
        tt.load(tmp_path / "bad.tar")


def test_a_save_that_fails_leaves_the_old_file_and_nothing_else(compiled, tmp_path, monkeypatch):
    exe = compiled[0]
    target = tmp_path / "model.tar"
    target.write_bytes(b"old")

    def full(_, entry, *rest):
        if entry.name == "constants.bin":
            raise OSError("no space left")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(OSError, match="no space left"):
        exe.save(target)
    assert target.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["model.tar"]


def test_a_process_killed_while_it_saves_leaves_the_old_file(compiled, tmp_path):
    exe, x, _ = compiled
    exe.save(tmp_path / "model.tar")
    before = (tmp_path / "model.tar").read_bytes()
    code = (
        "import os, signal, tarfile, tvm_tiling as tt\n"
        "exe = tt.load('model.tar')\n"
        "write = tarfile.TarFile.addfile\n"
        "def killed(archive, entry, content):\n"
        "    write(archive, entry, content)\n"
        "    if entry.name.startswith('model_0'):\n"
        "        archive.fileobj.flush()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "tarfile.TarFile.addfile = killed\n"
        "exe.save('model.tar')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "model.tar").read_bytes() == before
    np.testing.assert_array_equal(tt.load(tmp_path / "model.tar").run(x), exe.run(x))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a saved executable"),
        (b"\x7fELF" * 300, "is not a saved executable"),
        (tar(other=b"x"), "does not contain model.json"),
        (tar(model_json=b"{}", constants_bin=b""), "its description is corrupted"),
        (tar(model_json=b"[1", constants_bin=b""), "its description is corrupted"),
        (tar(model_json=description(version=9)), "format version 9, written by a newer tvm-tiling; expected 2 or 3"),
        (tar(model_json=description(format="other")), "its description is corrupted"),
        (tar(model_json=description(libraries=["0"])), "does not contain model_0.so"),
        (tar(model_json=description()), "does not contain constants.bin"),
        (tar(model_json=description(), constants_bin=b""), "its description is corrupted"),
        (
            tar(model_json=description(libraries=["0"]), **{"model=0_so": b"x"}, constants_bin=b""),
            "library is corrupted",
        ),
    ],
)
def test_what_is_not_an_executable_is_refused_before_it_is_loaded(content, said, tmp_path):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(ModelFormatError) as refused:
        tt.load(path)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_config_short_anywhere_is_refused(compiled, tmp_path):
    compiled[0].save(tmp_path / "model.tar")
    whole = (tmp_path / "model.tar").read_bytes()
    with tarfile.open(tmp_path / "model.tar") as archive:
        ends = [member.offset_data + member.size for member in archive.getmembers()]
    for end in (511, *(end - 1 for end in ends), ends[0] // 2):
        (tmp_path / "cut.tar").write_bytes(whole[:end])
        with pytest.raises(ModelFormatError, match=r"cut\.tar"):
            tt.load(tmp_path / "cut.tar")


def test_a_constant_outside_of_its_block_is_refused(compiled, tmp_path):
    exe = compiled[0]
    places = exe._constants.describe()
    for wrong in ({"offset": exe._constants.block.nbytes}, {"offset": 1}, {"shape": [1 << 40]}, {"dtype": "wide"}):
        description = {**exe.describe(), "fingerprint": "", "cores": 1, "places": [{**places[0], **wrong}, *places[1:]]}
        saved.write(tmp_path / "bad.tar", description, [exe.variants[0].library], exe._constants.block)
        with pytest.raises(ModelFormatError, match="its description is corrupted"):
            tt.load(tmp_path / "bad.tar")


LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "a constant of another shape": lambda known: known["places"][-1].update(shape=[1]),
    "a constant of another type": lambda known: known["places"][0].update(dtype="int8"),
    "a constant of 2**64 bytes": lambda known: known["places"][0].update(shape=[2**62]),
    "a constant within another": lambda known: known["places"][-1].update(offset=known["places"][0]["offset"]),
    "constants in another order": lambda known: known["variants"][0]["constants"].reverse(),
    "a constant too few": lambda known: known["variants"][0]["constants"].pop(),
    "a smaller input": lambda known: known["variants"][0]["signature"].update(input_shapes=[[1]]),
    "an input of another type": lambda known: known["variants"][0]["signature"].update(input_dtypes=["int8"]),
    "no input": lambda known: known["variants"][0]["signature"].update(
        input_shapes=[], input_dtypes=[], input_names=[]
    ),
}


def changed_description(source: Path, target: Path, change: Callable[[dict[str, Any]], None], honest: bool) -> None:
    """Return a saved executable with another description, with a matching digest if `honest`."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = old.extractfile(member).read()
            if member.name == "model.json":
                known = json.loads(content)
                change(known)
                if honest:
                    known["digest"] = saved._digest(known)
                content = json.dumps(known).encode()
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    target.chmod(0o600)


@pytest.fixture(scope="module")
def two_constants(tmp_path_factory):
    """Return a saved model of two constants."""
    path = tmp_path_factory.mktemp("saved") / "model.tar"
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit(relax.op.matmul(x, relax.const(np.ones((4, 6), "float32"))))
            output = builder.emit_output(relax.op.add(made, relax.const(np.arange(6, dtype="float32"))))
        builder.emit_func_output(output)
    tt.compile(builder.get(), cache=False).save(path)
    return path


@pytest.mark.parametrize("lie", LIES)
def test_a_description_that_was_changed_is_refused(lie, two_constants, tmp_path):
    changed_description(two_constants, tmp_path / "bad.tar", LIES[lie], honest=False)
    with pytest.raises(ModelFormatError, match="its description is corrupted"):
        tt.load(tmp_path / "bad.tar")


@pytest.mark.parametrize("lie", LIES)
def test_a_description_that_does_not_fit_the_library_is_refused_in_one_sentence(lie, two_constants, tmp_path):
    changed_description(two_constants, tmp_path / "bad.tar", LIES[lie], honest=True)
    with pytest.raises(tt.TilingError) as refused:
        executable = tt.load(tmp_path / "bad.tar")
        signature = executable.signature
        executable.run(*(np.zeros(s, d) for s, d in zip(signature.input_shapes, signature.input_dtypes, strict=True)))
    assert "\n" not in str(refused.value) and refused.value.__cause__ is None


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelFormatError, match=r"none\.tar cannot be read"):
        tt.load(tmp_path / "none.tar")


def test_a_second_compilation_comes_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    net = Network(SHAPE)
    mod, x = net.module(residual_network), net.arrays()[0]
    first = tt.compile(mod)
    (kept,) = tmp_path.glob("*.tar")
    monkeypatch.setattr("tvm_tiling.model.compilation._built", lambda *_, **__: pytest.fail("compiled again"))
    second = tt.compile(mod)
    np.testing.assert_array_equal(second.run(x), first.run(x))
    # Other weights, other options: another key.
    monkeypatch.undo()
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    tt.compile(Network(SHAPE, seed=1).module(residual_network))
    tt.compile(mod, winograd=False)
    assert len(list(tmp_path.glob("*.tar"))) == 3
    # A corrupted file counts as missing, and is replaced.
    content = kept.read_bytes()
    kept.unlink()  # for `first` runs from its pages
    kept.write_bytes(content[:1000])
    kept.chmod(0o600)
    np.testing.assert_array_equal(tt.compile(mod).run(x), first.run(x))
    assert kept.stat().st_size > 1000
