"""sdist and wheel: built, installed and used without a repository.

Dependencies are those of the environment that runs the tests; only the package itself is installed. Needs PyPI for
setuptools.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import tvm_tiling as tt

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

MAKE_SDIST = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"
MAKE_WHEEL = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
USE = """
import json, sys
from importlib import metadata, resources
import tvm_tiling as tt
entries = metadata.distribution("tvm-tiling").entry_points
print(json.dumps({
    "where": tt.__file__,
    "version": [tt.__version__, metadata.version("tvm-tiling")],
    "typed": resources.files("tvm_tiling").joinpath("py.typed").is_file(),
    "presets": len(list(resources.files("tvm_tiling.hardware.presets").glob("*.toml"))),
    "launch": resources.files("tvm_tiling.runtime").joinpath("launch.c").is_file(),
    "groups": sorted({entry.group for entry in entries}),
    "loaded": [entry.load() is not None for entry in entries if "torch" not in entry.group],
}))
"""


def run(*command: object, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = list(map(str, command))
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, from a copy of the repository's files, and the wheel, from the sdist alone."""
    folder = tmp_path_factory.mktemp("made")
    python = folder / "tools/bin/python"
    run(sys.executable, "-m", "venv", folder / "tools", cwd=folder)
    run(python, "-m", "pip", "install", "--quiet", "setuptools>=77", cwd=folder)
    sources = folder / "sources"
    names = ("pyproject.toml", "README.md", "LICENSE", "tvm_tiling", "schedules")
    sources.mkdir()
    run("cp", "-r", *(ROOT / name for name in names), sources, cwd=folder)
    run(python, "-c", MAKE_SDIST, folder, cwd=sources)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(python, "-c", MAKE_WHEEL, folder, cwd=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(made, tmp_path_factory) -> Path:
    """bin/ of a virtual environment into which the wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", made[1], cwd=folder)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # Found after the environment's own, and its .pth files, such as that of an editable install, are not read.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv/bin"


def test_wheel_has_every_module_and_what_goes_with_them(made):
    with zipfile.ZipFile(made[1]) as wheel:
        names = set(wheel.namelist())
    expected = {"tvm_tiling/py.typed", "tvm_tiling/runtime/launch.c"}
    for folder, prefix in ((ROOT / "tvm_tiling", "tvm_tiling"), (ROOT / "schedules", "tvm_tiling/schedules")):
        files = [*folder.rglob("*.py"), *folder.rglob("*.toml"), *folder.rglob("*.j2"), *folder.rglob("*.css")]
        expected |= {f"{prefix}/{file.relative_to(folder)}" for file in files}
    assert names >= expected
    assert {name.split("/")[0] for name in names} == {"tvm_tiling", f"tvm_tiling-{tt.__version__}.dist-info"}


def test_version_is_said_in_one_place(made):
    assert made[0].name == f"tvm_tiling-{tt.__version__}.tar.gz"
    assert f'"{tt.__version__}"' not in (ROOT / "pyproject.toml").read_text()


def test_package_is_whole_without_the_repository(installed):
    found = json.loads(run(installed / "python", "-c", USE, cwd=installed))
    assert Path(found["where"]).is_relative_to(installed.parent)
    assert found["version"] == [tt.__version__] * 2
    assert found["typed"] and found["launch"] and all(found["loaded"])
    assert found["presets"] == len(list((ROOT / "tvm_tiling/hardware/presets").glob("*.toml")))
    assert found["groups"] == ["console_scripts", "torch_dynamo_backends", "tvm.backends"]


def test_command_line_works_without_the_repository(installed):
    program = installed / "tvm-tiling"
    assert tt.__version__ in run(program, "--version", cwd=installed)
    assert "partition" in run(program, "explain", "gemm 64 512 64", "--hardware", "neartile", cwd=installed)
    assert "vta" in run(program, "hardware", "list", cwd=installed)
    report = json.loads(run(program, "demo", "--size", "128", "--json", cwd=installed))
    assert report["machine"] and report["networks"]


def test_type_checkers_see_the_types(installed, tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text("import tvm_tiling as tt\nreveal_type(tt.GemmWorkload(m=1, k=1, n=1).m)\n")
    command = (sys.executable, "-m", "mypy", "--python-executable", installed / "python", "--follow-imports=silent")
    assert 'Revealed type is "int"' in run(*command, "use.py", cwd=tmp_path).replace("builtins.int", "int")
