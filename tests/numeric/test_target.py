"""Targets by name: "vsim/<preset>", "vsim/<file.toml>", and tags of TVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.file import preset_names
from tvm_tiling.schedule import hardware_of, this_cpu
from tvm_tiling.target import ATTRIBUTE, register_tags

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ACCELERATORS = [name for name in preset_names() if Hardware.load(name).cpu is None]


@pytest.mark.parametrize("name", ACCELERATORS)
def test_presets_are_targets_and_tags(name):
    register_tags()
    machine = Hardware.load(name)
    assert hardware_of(f"vsim/{name}") == machine
    tagged = tvm.target.Target(f"vsim/{name}")
    assert tagged.kind.name == "llvm" and "vsim" in list(tagged.keys)
    assert hardware_of(tagged) == machine


def test_accelerators_of_page_06():
    assert ACCELERATORS == ["dla3", "neartile", "rnn16k", "rnn64k", "vta", "wfold16"]


def test_a_file_is_a_target(tmp_path, monkeypatch):
    machine = Hardware.neartile(buf_a=8, buf_b=8, acc_max=8, bw_a=1, bw_b=1, macs_per_cycle=4, name="mine")
    (tmp_path / "mine.toml").write_text(machine.to_toml())
    assert hardware_of(f"vsim/{tmp_path}/mine.toml") == machine
    monkeypatch.chdir(tmp_path)
    assert hardware_of("vsim/mine.toml") == machine
    by_attribute = tvm.target.Target({"kind": "llvm", "keys": ["vsim", "cpu"], ATTRIBUTE: "mine.toml"})
    assert hardware_of(by_attribute) == machine


def test_other_targets_are_what_they_were():
    machine = Hardware.load("vta")
    assert hardware_of(machine) is machine
    assert hardware_of("llvm") == hardware_of(tvm.target.Target("llvm")) == this_cpu()


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("vsim/vtx", "target 'vsim/vtx': unknown hardware preset 'vtx'; did you mean 'vta'?"),
        ("vsim/", "target 'vsim/': unknown hardware preset ''"),
        ("vsim/absent.toml", "target 'vsim/absent.toml': absent.toml cannot be read: No such file"),
        (
            "vsim/icelake-server-2c",
            "icelake-server-2c is not an accelerator; expected a description with at least one of",
        ),
        ("vsim", "target 'vsim' is not supported; expected 'llvm', a preset, a TOML file"),
    ],
)
def test_what_is_not_an_accelerator_is_refused(target, part):
    with pytest.raises(HardwareError) as caught:
        hardware_of(target)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_importing_tvm_brings_the_tags():
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, function = settings["tvm.backends"]["tvm_tiling"].partition(":")
    code = (
        "import importlib.metadata, sys\n"
        f"point = importlib.metadata.EntryPoint('tvm_tiling', '{module}:{function}', 'tvm.backends')\n"
        "register = point.load()\nassert 'tvm' not in sys.modules\nregister()\n"
        "import tvm\nassert tvm.target.Target('vsim/vta').attrs['feature.vsim.hardware'] == 'vta'\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
