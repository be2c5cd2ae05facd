"""`tvm-tiling doctor`: each check on what it should and should not find wrong."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from tvm_tiling.cli import doctor, main
from tvm_tiling.hardware import Hardware

ROOT = Path(__file__).parents[2]
WHOLE = {
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": "0.1.14.post1",
    "numpy": "2.0",
    "psutil": "7.0",
    "cloudpickle": "3.1",
    "xgboost": "3.0",
}


def packages(**changes):
    versions = {**WHOLE, **{name.replace("_", "-"): version for name, version in changes.items()}}
    return {check.name: check for check in doctor.check_packages(versions.get)}


def test_pins_are_those_of_the_project_file():
    text = (ROOT / "pyproject.toml").read_text()
    pinned = dict(re.findall(r'^    "([\w-]+)==([\w.]+)",$', text, flags=re.MULTILINE))
    assert {name: version for name, (version, _) in doctor.PINNED.items()} == pinned
    assert all(f'"{name}>=' in text for name in doctor.REQUIRED)
    assert all(re.search(rf'^{extra} = \[.*"{name}>=', text, re.MULTILINE) for name, extra in doctor.OPTIONAL.items())


def test_a_whole_installation_is_ok():
    assert {check.status for check in packages().values()} == {"ok"}
    assert packages()["torch"].remedy == "pip install 'tvm-tiling[torch]'"


def test_a_later_ffi_fails_and_says_why():
    check = packages(apache_tvm_ffi="0.1.15.post2")["apache-tvm-ffi"]
    assert check.status == "fail"
    assert "0.1.15.post2, not 0.1.14.post1" in check.found and "segmentation fault" in check.found
    assert check.remedy == "pip install apache-tvm-ffi==0.1.14.post1"


def test_missing_packages():
    assert packages(apache_tvm=None)["apache-tvm"].status == "fail"
    assert packages(numpy=None)["numpy"].status == "fail"
    check = packages(xgboost=None)["xgboost"]
    assert (check.status, check.remedy) == ("warn", "pip install xgboost")


def test_python():
    assert doctor.check_python((3, 10)).status == "ok"
    assert doctor.check_python((3, 9)).status == "fail"


@pytest.mark.parametrize(
    ("probe", "status", "part"),
    [
        (("0.27.0.post1", 1), "warn", "1 of 2 cores"),
        (("0.27.0.post1", 2), "ok", "2 of 2 cores"),
        (("0.27.0.post1", 8), "warn", "8 threads on 2 cores"),
        ("killed by signal 11", "fail", "does not start: killed by signal 11"),
    ],
)
def test_threads(probe, status, part):
    check = doctor.check_tvm(probe, cores=2)
    assert check.status == status and part in check.found
    assert ("TVM_NUM_THREADS=2" in check.remedy) == (status == "warn")


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
    assert caches.status == "warn" and "caches.l1.ways" in caches.found and "--hardware" in caches.remedy


def test_probe_survives_a_tvm_that_crashes_or_hangs(monkeypatch):
    monkeypatch.setattr(doctor, "PROBE", "import os; os.kill(os.getpid(), 11)")
    assert doctor._probe_tvm() == "killed by signal 11"
    monkeypatch.setattr(doctor, "PROBE", "raise ImportError('no libtvm')")
    assert doctor._probe_tvm() == "ImportError: no libtvm"
    monkeypatch.setattr(doctor, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.5)
    assert doctor._probe_tvm() == "no answer after 0.5 s"


def run(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(("doctor", *words))
    out, err = capsys.readouterr()
    return left.value.code or 0, out, err


def test_here(capsys):
    code, out, err = run(capsys, "--json")
    checks = {check["name"]: check for check in json.loads(out)}
    assert (code, err) == (0, "")
    assert {"python", "apache-tvm", "apache-tvm-ffi", "cpu", "caches", "cpu limit", "tvm threads"} <= set(checks)
    assert checks["python"]["found"] == ".".join(map(str, sys.version_info[:2]))
    assert "fail" not in {check["status"] for check in checks.values()}


def test_a_failure_exits_with_1(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "all_checks", lambda: [doctor.Check("thing", "fail", "broken", "mend it")])
    code, out, _ = run(capsys)
    assert code == 1
    assert "broken" in out and "mend it" in out
    assert run(capsys, "--json")[0] == 1


def test_the_compile_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "2M")
    (tmp_path / f"{'a' * 64}.tar").write_bytes(bytes(1 << 20))
    found = doctor.check_compile_cache()
    assert (found.status, found.found) == ("ok", f"1 models, 1 of 2 MiB in {tmp_path}")
    tmp_path.chmod(0o777)
    assert doctor.check_compile_cache().status == "warn" and "chmod go-w" in doctor.check_compile_cache().remedy
    monkeypatch.setenv("TVM_TILING_CACHE_SIZE", "some")
    assert doctor.check_compile_cache().status == "fail"
