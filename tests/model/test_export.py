"""Exported C libraries: built by CMake or by a compiler alone, compared with the executable and onnxruntime."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from networks import Network, attention, residual_network
from saving import lstm
from test_batch_parts import DIVISIBLE, model_of, values
from test_plan import half, inputs_of, looked_up, passed_on, together, topk
from tvm.support import cc

import tvm_tiling as tt
from tvm_tiling.errors import TilingError, UnsupportedOperator, WorkloadError
from tvm_tiling.hardware.instruction_sets import EXTENSIONS, InstructionSet, instruction_set_of_this_cpu
from tvm_tiling.model import pipeline
from tvm_tiling.model.export import export

pytestmark = pytest.mark.skipif(
    cc.get_cc() is None or not sys.platform.startswith("linux"), reason="needs a C compiler and Linux"
)

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def compiler(name: str = "cc") -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no C compiler called {name}")
    return found


def done(*command: object, folder: Path | None = None) -> str:
    made = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, cwd=folder)
    assert made.returncode == 0, made.stderr + made.stdout
    return made.stdout


def built(folder: Path, into: Path, *options: str) -> Path:
    """Build the example in C with the compiler alone."""
    program, name = into / "example", next(folder.glob("*.weights")).stem
    sources = [folder / each for each in (f"{name}.c", "plan.c", "launch.c", "main.c")]
    objects = sorted(folder.glob("*.o"))
    done(compiler(), "-std=c99", "-O2", "-g", *WARNINGS, *options, *sources, *objects, "-o", program, "-lm", "-pthread")
    return program


def results(program: Path, folder: Path, executable, given, into: Path) -> list[np.ndarray]:
    """Return what the program writes for these inputs."""
    files = []
    for number, array in enumerate(given):
        files.append(into / f"input_{number}.bin")
        array.tofile(files[-1])
    done(program, next(folder.glob("*.weights")), *files, folder=into)
    kinds = executable.variants[0].library.plan.outputs
    return [
        np.fromfile(into / f"output_{number}.bin", kind.dtype).reshape(kind.shape) for number, kind in enumerate(kinds)
    ]


def same(found, wanted) -> None:
    for one, other in zip(found, together(wanted), strict=True):
        np.testing.assert_array_equal(one, other)


MODELS = {
    "residual": lambda: Network((1, 3, 32, 32)).module(residual_network),
    "encoder": lambda: Network((1, 17, 24)).module(attention),
    "recurrent": lstm,
    "passed on": passed_on,
    "half": half,
}


@pytest.mark.parametrize("name", MODELS)
def test_the_c_library_gives_what_the_executable_gives(name, tmp_path):
    executable = tt.compile(MODELS[name](), cache=False)
    folder = executable.export(tmp_path / "model")
    program = built(folder, tmp_path)
    given = inputs_of(executable)
    same(results(program, folder, executable, given, tmp_path), executable.run(*given))


def test_a_batch_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "decide_parts", lambda work, cpu: 4)
    model = model_of(*DIVISIBLE["pools"])
    executable = tt.compile(model, cache=False)
    assert executable.report().parts == 4
    folder = executable.export(tmp_path / "model")
    given = values(model)
    same(results(built(folder, tmp_path), folder, executable, given, tmp_path), executable.run(*given))


def test_cmake_builds_libraries_and_examples_in_c_and_cpp(tmp_path):
    """CMake also installs them with a file for pkg-config; the example in C++ runs two models at once."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no C compiler's CMake")
    compiler("c++")
    executable = tt.compile(MODELS["residual"](), cache=False)
    executable.save(tmp_path / "model.tar")
    folder = tt.load(tmp_path / "model.tar").export(tmp_path / "a folder", name="tiny_net")
    build, installed = tmp_path / "build", tmp_path / "installed"
    done(cmake, "-S", folder, "-B", build, "-Werror=dev")
    done(cmake, "--build", build)
    done(cmake, "--install", build, "--prefix", installed)
    given = inputs_of(executable)
    for program in ("tiny_net_example", "tiny_net_example_cpp"):
        same(results(build / program, folder, executable, given, tmp_path), executable.run(*given))
    interface = {f"tiny_net_{each}" for each in ("create", "run", "destroy", "error", "inputs", "outputs")}
    assert not shutil.which("nm") or symbols(build / "libtiny_net.so", "-D") == interface
    found = {path.name for path in installed.rglob("*") if path.is_file()}
    assert found >= {"tiny_net.h", "libtiny_net.so", "libtiny_net.a", "tiny_net.weights", "tiny_net.pc"}
    assert "-ltiny_net" in next(installed.rglob("*.pc")).read_text()


def symbols(library: Path, *options: str) -> set[str]:
    """Return the symbols that a library exports."""
    lines = done("nm", "-g", "--defined-only", *options, library).splitlines()
    return {line.split()[-1] for line in lines if len(line.split()) == 3}


TWO = """
#include <stdio.h>
#include <string.h>
#include "first.h"
#include "second.h"

static float x[3 * 32 * 32], y[17 * 24], of_first[10], of_second[17 * 24], again[10];

int main(int count, char** arguments) {
  first_model* first;
  second_model* second;
  const void* from_x[] = {x};
  const void* from_y[] = {y};
  void* to_first[] = {of_first};
  void* to_second[] = {of_second};
  void* to_again[] = {again};
  FILE* given = fopen("given.bin", "rb");
  if (count != 3 || !given) return 1;
  if (fread(x, 1, sizeof x, given) != sizeof x || fread(y, 1, sizeof y, given) != sizeof y) return 2;
  if (first_create(&first, arguments[1], 0) || second_create(&second, arguments[2], 0)) return 3;
  if (first_create(&first, arguments[2], 0) != FIRST_WEIGHTS || !*first_error() || *second_error()) return 4;
  if (first_create(&first, arguments[1], 0)) return 5;
  if (first_run(first, from_x, to_first) || second_run(second, from_y, to_second)) return 6;
  if (first_run(first, from_x, to_again) || memcmp(of_first, again, sizeof again)) return 7;
  first_destroy(first);
  second_destroy(second);
  FILE* found = fopen("found.bin", "wb");
  if (!found || fwrite(of_first, 1, sizeof of_first, found) + fwrite(of_second, 1, sizeof of_second, found) != 1672)
    return 8;
  return fclose(found);
}
"""


def test_two_static_libraries_in_one_program(tmp_path):
    """Kernels have equal names in both: every symbol starts with its model's name."""
    archiver = compiler("ar")
    models = {"first": MODELS["residual"], "second": MODELS["encoder"]}
    executables = {name: tt.compile(model(), cache=False) for name, model in models.items()}
    libraries = []
    for name, executable in executables.items():
        folder = executable.export(tmp_path / name)
        sources = [folder / f"{name}.c", folder / "plan.c", folder / "launch.c"]
        (tmp_path / f"{name}_objects").mkdir()
        done(compiler(), "-std=c99", "-O2", *WARNINGS, "-c", *sources, folder=tmp_path / f"{name}_objects")
        libraries.append(tmp_path / f"lib{name}.a")
        done(archiver, "rcs", libraries[-1], *(tmp_path / f"{name}_objects").glob("*.o"), *folder.glob("*.o"))
        if shutil.which("nm"):
            assert {symbol for symbol in symbols(libraries[-1]) if not symbol.startswith(f"{name}_")} == set()
    (tmp_path / "two.c").write_text(TWO)
    headers = [f"-I{tmp_path / name}" for name in models]
    done(compiler(), *WARNINGS, *headers, tmp_path / "two.c", *libraries, "-o", tmp_path / "two", "-lm", "-pthread")
    given = [inputs_of(executable)[0] for executable in executables.values()]
    (tmp_path / "given.bin").write_bytes(b"".join(array.tobytes() for array in given))
    done(tmp_path / "two", *(tmp_path / name / f"{name}.weights" for name in models), folder=tmp_path)
    wanted = [together(e.run(x))[0] for e, x in zip(executables.values(), given, strict=True)]
    found = np.fromfile(tmp_path / "found.bin", "float32")
    np.testing.assert_array_equal(found, np.concatenate([each.reshape(-1) for each in wanted]))


def test_what_onnxruntime_says(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    model = lstm()
    executable = tt.compile(model, cache=False)
    folder = executable.export(tmp_path / "recurrent")
    given = inputs_of(executable)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, dict(zip(executable.signature.input_names, given, strict=True)))
    found = results(built(folder, tmp_path), folder, executable, given, tmp_path)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-6)


# ---- the interface in C ----------------------------------------------------------------------------------------------

INTERFACE = Path(__file__).with_name("export_interface.c")


@pytest.mark.parametrize("sanitizer", ["", "-fsanitize=address,undefined"])
def test_the_interface_in_c(sanitizer, tmp_path):
    executable = tt.compile(MODELS["residual"]())
    folder = executable.export(tmp_path / "model")
    other = bytearray((folder / "model.weights").read_bytes())
    other[17] ^= 1
    (tmp_path / "other.weights").write_bytes(other)
    (folder / "main.c").write_text(INTERFACE.read_text())
    program = built(folder, tmp_path, *filter(None, [sanitizer, "-Wno-switch"]))
    assert done(program, folder / "model.weights", tmp_path / "other.weights") == ""


def with_instructions(executable, extensions):
    """The executable as if its kernels needed these, each by LLVM's name."""
    variant = executable.variants[0]
    needed = InstructionSet.of(variant.library.instructions.arch, extensions)
    variant.library = replace(variant.library, instructions=needed)
    return executable


def test_a_cpu_that_lacks_instructions_is_an_error_and_no_end(tmp_path):
    """The check asks the processor itself, and agrees with the system about every extension."""
    own = instruction_set_of_this_cpu()
    every = [each.name for each in EXTENSIONS[own.arch]]
    lacking = [name for name in every if name not in own.extensions]
    executable = with_instructions(tt.compile(MODELS["residual"](), cache=False), every)
    folder = executable.export(tmp_path / "model")
    program = built(folder, tmp_path)
    made = subprocess.run([program, folder / "model.weights"], capture_output=True, text=True, cwd=tmp_path)
    said = f"the model was compiled for another CPU: this one lacks {', '.join(lacking)}; compile it for this CPU"
    assert lacking and (made.returncode, made.stderr.strip()) == (1, said)
    variant = with_instructions(executable, own.extensions).variants[0]
    for needed in (variant.library.instructions, None):  # a file of an older release does not tell
        variant.library = replace(variant.library, instructions=needed)
        done(built(executable.export(folder), tmp_path), folder / "model.weights", folder=tmp_path)


def test_a_refused_index_is_an_error_and_no_end(tmp_path):
    executable = tt.compile(looked_up(), cache=False)
    folder = executable.export(tmp_path / "model")
    program = built(folder, tmp_path)
    x = np.ones((5, 4), "float32")
    for number, array in enumerate((x, np.array([0, 1, 7]), np.array([1, 1, 1]))):
        array.tofile(tmp_path / f"input_{number}.bin")
    files = [str(tmp_path / f"input_{number}.bin") for number in range(3)]
    made = subprocess.run([program, folder / "model.weights", *files], capture_output=True, text=True, cwd=tmp_path)
    with pytest.raises(WorkloadError) as refused:
        executable.run(x, np.array([0, 1, 7]), np.array([1, 1, 1]))
    assert (made.returncode, made.stderr.strip()) == (1, str(refused.value))


# ---- what is refused, and how folders are written --------------------------------------------------------------------


def test_an_operator_of_tvm_is_named(tmp_path):
    executable = tt.compile(topk(), cache=False)
    with pytest.raises(UnsupportedOperator, match=r"cannot be exported: operator 'topk' calls tvm\."):
        executable.export(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_of_several_variants_shapes_choose_one(tmp_path):
    from test_variants import open_product

    executable = tt.compile(open_product(), batch=[1, 2], cache=False)
    with pytest.raises(WorkloadError, match=r"2 of the model's 2 variants have the shapes .*, but exactly one can"):
        executable.export(tmp_path / "model")
    name, shape = executable.signature.input_names[0], executable.variants[1].signature.input_shapes[0]
    with pytest.raises(WorkloadError, match="the model has no input 'nothing'"):
        executable.export(tmp_path / "model", shapes={"nothing": shape})
    folder = executable.export(tmp_path / "model", shapes={name: shape})
    given = [np.ones(shape, "float32")]
    files = tmp_path / "input_0.bin"
    given[0].tofile(files)
    done(built(folder, tmp_path), folder / "model.weights", files, folder=tmp_path)
    wanted = together(executable.run(*given))[0]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "output_0.bin", wanted.dtype).reshape(wanted.shape), wanted)


def test_a_folder_is_written_again_and_others_are_left_alone(tmp_path):
    executable = tt.compile(MODELS["residual"]())
    (tmp_path / "empty").mkdir()
    folder = executable.export(tmp_path / "empty", name="one")
    assert (folder / "one.c").exists() and (folder / "kernels_0.o").exists()
    executable.export(folder, name="two")
    assert (folder / "two.c").exists() and not (folder / "one.c").exists()
    (folder / "mine.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="which no export wrote; expected a new or empty directory"):
        executable.export(folder, name="three")
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("notes")
    with pytest.raises(FileExistsError, match=r"contains notes\.txt, which no export wrote"):
        executable.export(other)
    with pytest.raises(FileExistsError, match="is not a directory"):
        executable.export(other / "notes.txt")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        executable.export(tmp_path / "none" / "model")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "other"]


def test_an_export_that_fails_leaves_nothing(tmp_path, monkeypatch):
    executable = tt.compile(MODELS["residual"]())
    folder = executable.export(tmp_path / "model")
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(export, "MAGIC", None)
    for place in ("model", "new"):
        with pytest.raises(TypeError):
            executable.export(tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("name", ["two words", "1st", "a-b", "", "main", "plan", "é"])
def test_names_that_c_does_not_take(name, tmp_path):
    with pytest.raises(TilingError, match="expected letters, digits and underscores"):
        tt.compile(MODELS["residual"]()).export(tmp_path / "model", name=name)


@pytest.mark.parametrize(("folder", "name"), [("ResNet-50", "ResNet_50"), ("1st", "model_1st"), ("plan", "model_plan")])
def test_the_folders_name_is_made_one_of_c(folder, name, tmp_path):
    found = tt.compile(MODELS["residual"]()).export(tmp_path / folder)
    assert (found / f"{name}.h").exists()
