"""Instruction set extensions of simulated systems, and those that machine code lacks there."""

from __future__ import annotations

import machines
import pytest

from tvm_tiling.hardware import instruction_sets
from tvm_tiling.hardware.cpuinfo import ARM_FEATURES, X86_FEATURES
from tvm_tiling.hardware.instruction_sets import EXTENSIONS, InstructionSet, instruction_set_of_this_cpu

HASWELL = "fpu sse2 pni ssse3 sse4_1 sse4_2 movbe popcnt fma avx f16c bmi1 avx2 bmi2 abm"


@pytest.fixture
def on(monkeypatch, tmp_path):
    """Create a system of an architecture with these flags."""

    def made(arch: str, flags: str, cores: int = 2):
        monkeypatch.setattr(instruction_sets.platform, "machine", lambda: arch)
        x86 = machines.x86_cpuinfo("GenuineIntel", 6, 63, "a CPU", flags, cores)
        arm = machines.arm_cpuinfo(0x41, 0xD0C, flags, cores)
        machines.add_cpuinfo(tmp_path, x86 if arch == "x86_64" else arm)
        return tmp_path

    return made


def test_the_flags_of_a_cpu_are_extensions_by_llvms_names(on):
    found = instruction_set_of_this_cpu(on("x86_64", HASWELL))
    assert found.arch == "x86_64" and "avx512f" not in found.extensions
    assert set(found.extensions) >= {"avx2", "fma", "bmi", "lzcnt", "sse4.2"}
    found = instruction_set_of_this_cpu(on("aarch64", "fp asimd atomics asimdhp asimddp"))
    assert found == InstructionSet("aarch64", ("dotprod", "fullfp16", "lse", "neon"))


def test_what_a_cpu_lacks_is_named(on):
    needed = InstructionSet.of("x86_64", ["avx2", "avx512f", "avx512vnni", "64bit", "sse2"])
    assert needed.extensions == ("avx2", "avx512f", "avx512vnni")
    assert needed.lacking(on("x86_64", HASWELL)) == "avx512f, avx512vnni"
    assert needed.lacking(on("x86_64", f"{HASWELL} avx512f avx512_vnni")) == ""
    assert needed.lacking(on("aarch64", "asimd")) == "the architecture x86_64 (this CPU is aarch64)"
    later = InstructionSet.from_dict({"arch": "x86_64", "extensions": ["avx2", "avx30"]})
    assert later.lacking(on("x86_64", HASWELL)) == "avx30"


def test_a_system_that_hides_its_flags_lacks_nothing(on, tmp_path):
    needed = InstructionSet.of("x86_64", ["avx512f"])
    assert needed.lacking(tmp_path / "no such folder") == ""
    assert needed.lacking(on("x86_64", "")) == ""
    assert needed.lacking(on("riscv64", "")) == ""


def test_the_first_of_many_entries_is_enough(on):
    assert InstructionSet.of("x86_64", ["avx2"]).lacking(on("x86_64", HASWELL, cores=500)) == ""


def test_plain_values_and_back():
    needed = InstructionSet.of("aarch64", ["neon", "sve"])
    assert InstructionSet.from_dict(needed.to_dict()) == needed
    for wrong in ({"arch": 1, "extensions": []}, {"arch": "x86_64", "extensions": "avx"}, {"arch": "x86_64"}):
        with pytest.raises((ValueError, KeyError)):
            InstructionSet.from_dict(wrong)


def test_every_extension_is_there_once_and_those_that_kernels_use_are():
    for arch, used in (("x86_64", X86_FEATURES), ("aarch64", ARM_FEATURES)):
        names = [each.name for each in EXTENSIONS[arch]]
        places = {(each.leaf, each.subleaf, each.word, each.bit) for each in EXTENSIONS[arch]}
        assert len(set(names)) == len({each.flag for each in EXTENSIONS[arch]}) == len(places) == len(names)
        flags = {each.name: each.flag for each in EXTENSIONS[arch]}
        # AMX and cryptography: no kernel uses them.
        unused = {name for name in used.values() if name.startswith(("amx", "vaes", "vpcl"))}
        assert {name: flag for flag, name in used.items() if name not in unused}.items() <= flags.items()
