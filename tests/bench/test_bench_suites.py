"""Suites load and are well-formed; malformed ones are refused."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from benchmarks import isa, suite
from benchmarks.peers import get_peer
from benchmarks.run import Settings, parse
from benchmarks.suite import SuiteError, load_suite, suite_names
from tvm_tiling.workload import GemmWorkload

SHAPES = {
    name: {(c.workload.m, c.workload.k, c.workload.n) for c in load_suite(name)}
    for name in ("gemm", "leading_dimension")
}


def test_the_suites_of_the_page_are_there():
    assert {"conv", "gemm", "leading_dimension"} <= set(suite_names())


@pytest.mark.parametrize("name", suite_names())
def test_cases_have_names_of_their_own_and_known_peers(name):
    cases = load_suite(name)
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        for peer in case.peers:
            get_peer(peer)
    assert any(case.short for case in cases) or name == "calibration"  # a study's, not a benchmark's
    assert not all(case.short for case in cases)


def test_gemm_covers_what_the_page_asks_for():
    shapes = SHAPES["gemm"]
    assert {(s, s, s) for s in (256, 512, 1024, 2048, 4096)} <= shapes
    assert {(s, s, s) for s in (255, 257, 1023, 1025)} <= shapes
    assert (64, 16384, 64) in shapes
    assert {m for m, k, n in shapes if (k, n) in ((1024, 4096), (4096, 1024))} >= {1, 128, 384, 512, 4096}
    assert any(n == 1 for _, _, n in shapes)
    assert any(m == 1 for m, _, _ in shapes)
    assert {case.workload.dtype for case in load_suite("gemm")} == {"float32", "bfloat16", "int8"}


def test_leading_dimensions_and_the_seeds_table():
    cases = load_suite("leading_dimension")
    assert {(10752, 1024, 1024), (1764, 1024, 3072), (42, 4096, 1024)} <= SHAPES["leading_dimension"]
    assert {case.workload.ldb for case in cases if "ld+16" in case.peers} == {1024, 2048, 4096}
    assert all(case.peers[:4] == ("A", "B", "C", "D") for case in cases if case.group == "seed")


def test_short_set_fits_ten_minutes():
    # Two or three peers of about a second each, and about two seconds to build the kernels.
    short = sum(case.short for name in suite_names() for case in load_suite(name))
    assert short * 6 < 600


def test_types_of_the_full_set_are_not_in_the_short_one():
    cases = [case for name in suite_names() for case in load_suite(name) if case.workload.dtype == "bfloat16"]
    assert cases and not any(case.short for case in cases)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[group]]\nname = "x"\nshort = [[1, 2]]', "must be [m, k, n]"),
        ('[[group]]\nname = "x"\nshort = [[1, 0, 2]]', "k = 0"),
        ('[[group]]\nname = "x"\nshort = [[8, 8, 8, 4]]', "lda = 4; expected at least 8"),
        ('[[group]]\nname = "x"\nshort = [[1, 2, 3]]\ndtype = "int8"', "'dtype'; did you mean 'dtypes'"),
        ('[[group]]\nname = "x"\nshort = [[1, 2, 3]]\ndtypes = ["int9"]', "'int9'"),
        ('[[group]]\nname = "x"', "no shapes"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4}]', "k missing"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4, k=3, pad=1}]', "unknown field 'pad'"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4, k=[3]}]', "k = [3], must be one number or [rows, columns]"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4, k=9}]', "kernel = 9x9 is larger"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4, k=1, g=2}]', "groups = 2; expected a divisor"),
        ('[[group]]\nname = "x"\nshort = [{h=8, ci=3, co=4, k=1, times=0}]', "times = 0, must be whole numbers"),
        ("[[group]", "bad.toml"),
        ("\0", "bad.toml"),
    ],
)
def test_a_wrong_suite_is_an_error_that_says_where(tmp_path, monkeypatch, text, told):
    (tmp_path / "bad.toml").write_text(text)
    monkeypatch.setattr(suite, "FOLDER", tmp_path)
    with pytest.raises(SuiteError) as error:
        load_suite("bad")
    assert told in str(error.value)
    assert "bad.toml" in str(error.value)


def test_a_suite_of_ones_own_is_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[group]]\nname = "mine"\nshort = [[1, 2, 3]]')
    assert [case.workload for case in load_suite(str(path))] == [GemmWorkload(m=1, k=2, n=3)] * 2
    with pytest.raises(SuiteError, match=r"none\.toml: No such file"):
        load_suite(str(tmp_path / "none.toml"))


def test_unknown_suite_and_peer():
    with pytest.raises(SuiteError, match="did you mean 'gemm'"):
        load_suite("gem")
    with pytest.raises(SuiteError, match="did you mean 'numpy'"):
        get_peer("nunpy")


def test_settings_select_cases():
    settings = Settings(suite="gemm", short=True, packed=False, dtype="int8", match="cube")
    assert {case.name for case in settings.cases()} == {f"cube {s}x{s}x{s} int8" for s in (256, 512, 1024)}
    with pytest.raises(SuiteError, match="no case"):
        Settings(suite="gemm", match="no such name").cases()


def test_command_line():
    assert parse(["--suite", "gemm", "--peers", "numpy,torch", "--unpacked"]).packed is False
    assert parse(["--suite", "gemm", "--packed"]).packed is True
    assert parse(["--suite", "gemm"]).packed is None
    assert parse(["--suite", "gemm", "--peers", "numpy,torch"]).peers == ("numpy", "torch")
    assert "onnxruntime" not in parse(["--suite", "gemm", "--isa", "avx2"]).peers


def test_a_limited_run_starts_again_with_the_switches_of_all(monkeypatch):
    monkeypatch.setattr(
        subprocess, "run", lambda command, env, check: SimpleNamespace(returncode=env["OPENBLAS_CORETYPE"])
    )
    assert isa.again("avx2", "benchmarks.run", []) == "Haswell"
    for name, value in isa.SWITCHES["avx2"].items():
        monkeypatch.setenv(name, value)
    assert isa.again("avx2", "benchmarks.run", []) is None and isa.is_limited()
