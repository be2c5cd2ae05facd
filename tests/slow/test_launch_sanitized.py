"""The native part, launch.c, under load with the compiler's sanitizers and in valgrind: no invalid address, no
undefined behaviour, no data race, every task exactly once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tvm_tiling.runtime.launcher import SOURCE

pytestmark = pytest.mark.slow
STRESS = Path(__file__).with_name("launch_stress.c")
WARNINGS = ("-Wall", "-Wextra", "-Werror")


def stress(folder: Path, *options: str) -> Path:
    """The compiled program; the test is skipped if the compiler lacks the required features."""
    compiler, program = shutil.which("gcc") or shutil.which("clang"), folder / "stress"
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, "-g", "-O1", *WARNINGS, "-pthread", *options, "-I", SOURCE.parent, STRESS, "-o", program]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode and "sanitize" in made.stderr + made.stdout:
        pytest.skip(f"{compiler} has no such sanitizer")
    assert made.returncode == 0, made.stderr
    return program


@pytest.mark.parametrize(
    ("sanitizer", "arguments"),
    [("address,undefined", ("100000",)), ("thread", ("100000", "without fork"))],
)
def test_sanitizers_find_nothing(sanitizer, arguments, tmp_path):
    program = stress(tmp_path, f"-fsanitize={sanitizer}", "-fno-sanitize-recover=undefined")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=1200)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "right", "")


def test_valgrind_finds_nothing(tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    options = ("-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite")
    command = ["valgrind", *options, "--show-leak-kinds=definite", stress(tmp_path), "2000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "right", "")
