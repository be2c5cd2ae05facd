"""`tvm-tiling doctor`: each check on correct and faulty installations."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from importlib import metadata
from pathlib import Path

import command_line
import pytest

from tvm_tiling.cli import doctor, doctor_checks
from tvm_tiling.cli.doctor_checks import EXTRAS, PARTS, WRONG, Answer, check_packages, check_tvm, requirements
from tvm_tiling.hardware import Hardware
from tvm_tiling.model import toolchain

ROOT = Path(__file__).parents[2]
ASKED = requirements(metadata.requires("tvm-tiling"))


def whole(**changes):
    """Return the versions of a correct installation, with changes."""
    versions = {}
    for each in ASKED:
        if least := re.search(r"[>=]=([\w.]+)", str(each.versions)):
            versions[each.name] = least[1]
    return {**versions, **{name.replace("_", "-"): version for name, version in changes.items()}}


def packages(**changes):
    return {check.name: check for check in check_packages(ASKED, whole(**changes).get)}


def test_every_pin_and_every_part_is_one_that_the_project_asks_for():
    pinned = {each.name for each in ASKED if str(each.versions).startswith("==") and not each.extra}
    assert pinned == set(WRONG)
    assert set(PARTS) <= {each.name for each in ASKED if not each.extra}
    text = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf'^{extra} = \[.*"{name}[>=\[]', text, re.MULTILINE) for extra, (name, _) in EXTRAS.items())


def test_requirements_are_read_as_metadata_write_them():
    lines = [
        "a==1.0.post1",
        "b<3,>=1.26",
        'c[d]>=3; extra == "onnx"',
        'e; python_version < "3"',
        'f; extra == "x"',
        "g",
    ]
    found = [(each.name, str(each.versions), each.extra) for each in requirements(lines)]
    assert found == [("a", "==1.0.post1", ""), ("b", "<3,>=1.26", ""), ("c", ">=3", "onnx"), ("g", "", "")]


@pytest.mark.parametrize(("version", "status"), [("2.13.0+cpu", "ok"), ("2.14.0rc1", "ok"), ("3.0.0", "warn")])
def test_builds_and_trial_releases_are_versions_like_others(version, status):
    assert packages(torch=version)["torch"].status == status


def test_a_whole_installation_is_ok():
    assert {check.status for check in packages().values()} == {"ok"}


def test_a_later_ffi_fails_and_says_why():
    check = packages(apache_tvm_ffi="0.1.15.post2")["apache-tvm-ffi"]
    assert check.status == "fail"
    assert "0.1.15.post2; expected 0.1.14.post1" in check.found and "segmentation fault" in check.found
    assert check.hint == "pip install 'apache-tvm-ffi==0.1.14.post1'"


def test_missing_and_wrong_packages():
    assert packages(apache_tvm=None)["apache-tvm"].status == "fail"
    assert packages(numpy=None)["numpy"].status == "fail"
    check = packages(xgboost_cpu=None)["xgboost-cpu"]
    assert check.status == "warn" and check.hint.startswith("pip install 'xgboost")
    check = packages(numpy="3.1")["numpy"]
    assert check.status == "warn" and "3.1; expected " in check.found
    check = packages(torch=None)["torch"]
    assert (check.status, check.hint) == ("ok", "pip install 'tvm-tiling[torch]'") and "no PyTorch" in check.found
    assert packages(onnx="1.2")["onnx"].status == "warn"
    (check,) = check_packages(None, {}.get)
    assert check.status == "warn" and "not installed" in check.found


def test_python():
    assert doctor.check_python((3, 10)).status == "ok"
    assert doctor.check_python((3, 9)).status == "fail"


SOUND = Answer(tvm="0.27.0.post1", ffi="0.1.14.post1", threads=2, place="tvm/__init__.py")


def tvm(answer, environment=()):
    return {check.name: check for check in check_tvm(answer, 2, whole().get, dict(environment))}


@pytest.mark.parametrize(
    ("threads", "environment", "status", "part"),
    [
        (1, {}, "warn", "1 of 2 cores"),
        (1, {"TVM_NUM_THREADS": "1"}, "warn", "TVM_NUM_THREADS=1"),
        (2, {"TVM_NUM_THREADS": "2"}, "ok", "2 of 2 cores"),
        (8, {}, "warn", "8 threads on 2 cores"),
    ],
)
def test_threads(threads, environment, status, part):
    check = tvm(dataclasses.replace(SOUND, threads=threads), environment)["tvm threads"]
    assert check.status == status and part in check.found
    assert ("TVM_NUM_THREADS=2" in check.hint) == (status == "warn")


def test_a_tvm_that_does_not_start_crashes_or_is_another_copy():
    assert tvm(SOUND)["tvm"].status == "ok"
    check = tvm(Answer(error="ImportError: no libtvm"))["tvm"]
    assert check.status == "fail" and "does not start: ImportError: no libtvm" in check.found
    check = tvm(dataclasses.replace(SOUND, ffi="0.1.15", error="killed by signal 11"))["tvm"]
    assert check.status == "fail" and "apache-tvm-ffi 0.1.15 is incompatible" in check.found
    check = tvm(dataclasses.replace(SOUND, tvm="0.28"))["tvm"]
    assert check.status == "warn" and "apache-tvm 0.28 instead of the installed 0.27.0.post1" in check.found


def test_affinity_and_compiler():
    assert doctor.check_affinity(2, 2).status == "ok"
    check = doctor.check_affinity(1, 4)
    assert check.status == "warn" and "1 of 4 processors" in check.found
    assert doctor.check_compiler({"CXX": sys.executable}).found == sys.executable


def test_without_a_compiler_it_says_what_is_lost(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    check = doctor.check_compiler({})
    assert check.status == "warn" and "TVM's thread pool" in check.found and check.hint


@pytest.mark.parametrize("other", ["aarch64", "x86_64"])
def test_cross_compilers(other, monkeypatch):
    for module in (doctor, toolchain):
        monkeypatch.setattr(module, "host_arch", lambda: {"aarch64": "x86_64", "x86_64": "aarch64"}[other])
    name = toolchain.variable(other)
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: None)
    (check,) = doctor.check_cross_compilers()
    assert (check.name, check.status) == (f"cross compiler ({other})", "ok")
    assert "optional" in check.found and "-linux-gnu" in check.hint and name in check.hint
    monkeypatch.setenv(name, "none-such --sysroot=/arm")
    (check,) = doctor.check_cross_compilers()
    assert check.status == "warn" and "none-such" in check.found
    monkeypatch.setattr(toolchain.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert next(doctor.check_cross_compilers()).found == "none-such --sysroot=/arm"
    monkeypatch.delenv(name)
    assert next(doctor.check_cross_compilers()).found == f"/usr/bin/{toolchain.usual(other)}"


def test_limit():
    assert doctor.check_limit(None, 8).status == "ok"
    assert doctor.check_limit(8.0, 8).status == "ok"
    check = doctor.check_limit(1.5, 8)
    assert check.status == "warn" and "1.5 of 8" in check.found


def test_assumed_fields_are_named():
    cpu = Hardware.load("icelake-server-2c").cpu
    assert (doctor.check_cpu(cpu).status, doctor.check_caches(cpu).status) == ("ok", "ok")
    guessed = dataclasses.replace(cpu, assumed=("fma_units", "caches.l1.ways"))
    assert doctor.check_cpu(guessed).status == "warn" and "fma_units" in doctor.check_cpu(guessed).found
    assert "caches" not in doctor.check_cpu(guessed).found
    caches = doctor.check_caches(guessed)
    assert caches.status == "warn" and "caches.l1.ways" in caches.found and "--target" in caches.hint


def test_probe_survives_a_tvm_that_crashes_or_hangs(monkeypatch):
    monkeypatch.setattr(doctor_checks, "PROBE", "import os; os.kill(os.getpid(), 11)")
    assert doctor_checks.probe() == Answer(error="killed by signal 11")
    hover = 'print(\'["0.27", "0.1", 2, "there"]\', flush=True)'
    monkeypatch.setattr(doctor_checks, "PROBE", f"import os; {hover}; os.kill(os.getpid(), 11)")
    assert doctor_checks.probe() == Answer("0.27", "0.1", 2, "there", "killed by signal 11")
    monkeypatch.setattr(doctor_checks, "PROBE", "raise ImportError('no libtvm')")
    assert doctor_checks.probe() == Answer(error="ImportError: no libtvm")
    monkeypatch.setattr(doctor_checks, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor_checks, "PROBE_SECONDS", 0.5)
    assert doctor_checks.probe() == Answer(error="no answer after 0.5 s")


def run(capsys, *words):
    return command_line.run(capsys, "doctor", *words)


def test_here(capsys):
    code, out, err = run(capsys, "--json")
    checks = {check["name"]: check for check in json.loads(out)}
    assert (code, err) == (0, "")
    assert {"python", "apache-tvm", "apache-tvm-ffi", "cpu", "caches", "cpu limit", "tvm threads"} <= set(checks)
    assert checks["python"]["found"] == ".".join(map(str, sys.version_info[:2]))
    assert "fail" not in {check["status"] for check in checks.values()}


def test_a_failure_exits_with_1(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "all_checks", lambda: [doctor.Check("thing", "fail", "broken", "fix it")])
    code, out, _ = run(capsys)
    assert code == 1
    assert "broken" in out and "fix it" in out
    assert run(capsys, "--json")[0] == 1


def test_the_compile_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "2M")
    (tmp_path / f"{'a' * 64}.tar").write_bytes(bytes(1 << 20))
    found = doctor.check_compile_cache()
    assert (found.status, found.found) == ("ok", f"1 model and 0 kernels, 1 of 2 MiB used, in {tmp_path}")
    tmp_path.chmod(0o777)
    assert doctor.check_compile_cache().status == "warn" and "chmod go-w" in doctor.check_compile_cache().hint
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "some")
    assert doctor.check_compile_cache().status == "fail"


def test_a_user_without_a_home_has_no_compile_cache(monkeypatch):
    def fail():
        raise RuntimeError("no home")

    for name in ("TVM_TILING_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pathlib.Path.home", fail)
    check = doctor.check_compile_cache()
    assert (check.status, check.found) == ("warn", "not used: this user has no home directory")
    assert check.hint == "set TVM_TILING_CACHE to another directory"


def test_a_calibration_that_cannot_be_used_is_a_failure(tmp_path, monkeypatch):
    assert doctor.check_calibration().found == "none: constants of the microarchitecture"
    (tmp_path / "mine.toml").write_text("cpu = 1\n")
    monkeypatch.setenv("TVM_TILING_CALIBRATION", str(tmp_path / "mine.toml"))
    check = doctor.check_calibration()
    assert check.status == "fail" and "mine.toml" in check.found and "TVM_TILING_CALIBRATION=off" in check.hint
