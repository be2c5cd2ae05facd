"""Files written by earlier versions, one of each kind (data/old/README.md): each loads with equal content. Unsupported
versions are refused with a message."""

from __future__ import annotations

import json
import lzma
import platform
import re
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import config_of
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.recorded import read_decision
from tvm_tiling.errors import DatabaseError, ModelFormatError, ProgramError
from tvm_tiling.report.save import result_page
from tvm_tiling.tuning.learning.residual import Residual
from tvm_tiling.tuning.measuring.measurer import Measured
from tvm_tiling.tuning.shapes.key import workload_from_dict
from tvm_tiling.tuning.shapes.trials import TrialLog

OLD = sorted(path for path in (Path(__file__).parent / "data" / "old").iterdir() if path.is_dir())
CPU, VTA = tt.Hardware.load("icelake-server-2c"), tt.Hardware.load("vta")
X86 = platform.machine() in ("x86_64", "AMD64")


def versions(name: str):
    """Return the directories that contain a file of this name."""
    found = [path for path in OLD if (path / name).exists()]
    return pytest.mark.parametrize("old", found, ids=[path.name for path in found])


def unpacked(source: Path, folder: Path) -> Path:
    """Return a file with its writer's permissions: writable by this user only."""
    target = folder / source.stem
    target.write_bytes(lzma.decompress(source.read_bytes()))
    target.chmod(0o600)
    return target


def gemm(m: int, n: int, k: int, **more) -> tt.GemmWorkload:
    return tt.GemmWorkload(m=m, n=n, k=k, **{"dtype": "float32", **more})


# ---- executables and programs ----------------------------------------------------------------------------------------


def loaded(path: Path):
    """Load the executable; on another architecture the test ends after checking the refusal."""
    if X86:
        return tt.load(path)
    with pytest.raises(ModelFormatError, match="library cannot be loaded here"):
        tt.load(path)
    pytest.skip("the file holds code for x86-64")


EXECUTABLES = [path for old in OLD for path in (old / "executable.tar.xz", old / "objects.tar.xz") if path.exists()]


@pytest.mark.parametrize("source", EXECUTABLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_saved_models_load_and_run(source, tmp_path):
    exe = loaded(unpacked(source, tmp_path))
    x = np.arange(32, dtype="float32").reshape(4, 8) - 16
    weights = np.random.default_rng(0).integers(-4, 5, (8, 8)).astype("float32")
    np.testing.assert_array_equal(exe.run(x), np.maximum(x @ weights, 0))
    assert [operator.name for operator in exe.operators] == ["fused_matmul_relu"] and exe.cores == 1
    assert exe.operators[0].nodes == ()  # the models of these files have no names
    out = tt.aligned_empty((4, 8))
    assert exe.run(x, out=out) is out
    np.testing.assert_array_equal(out, exe.run(x))
    shifted = tt.aligned_empty(40)[1:33].reshape(4, 8)  # kernels of earlier versions expect aligned memory
    shifted[...] = x
    np.testing.assert_array_equal(exe.run(shifted, out=tt.aligned_empty(40)[1:33].reshape(4, 8)), out)
    for wrong in (np.zeros((8, 4), "float32"), np.zeros((4, 8))):  # known only after a run
        with pytest.raises(tt.WorkloadError, match="expected"):
            exe.run(x, out=wrong)
    exe.save(tmp_path / "again.tar")
    np.testing.assert_array_equal(tt.load(tmp_path / "again.tar").run(x), exe.run(x))


def test_an_export_of_an_earlier_model_copies_what_its_kernels_do_not_read(tmp_path):
    exe = loaded(unpacked(OLD[0].parent / "2026-11-26" / "executable.tar.xz", tmp_path))
    exe.export(tmp_path / "library", name="net")
    assert "copied only if it is not aligned to 64 bytes" in (tmp_path / "library" / "net.h").read_text()
    assert "#define TVM_TILING_BORROWED_ALIGNMENT 64\n" in (tmp_path / "library" / "plan.c").read_text()


@versions("accelerated.tar.xz")
def test_saved_models_with_programs_load_and_run(old, tmp_path):
    exe = loaded(unpacked(old / "accelerated.tar.xz", tmp_path))
    x = np.linspace(-1, 1, 256, dtype="float32").reshape(16, 16)
    found, report = exe.simulate(x)
    np.testing.assert_allclose(found, np.load(old / "accelerated.npy"), rtol=1e-6)
    assert report.cycles > 0


@versions("product.vsim")
def test_programs_load_and_run(old):
    exe = tt.load(old / "product.vsim")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, (16, 16)).astype("int8") for _ in range(2))
    found, report = exe.simulate(a, b)
    np.testing.assert_array_equal(found, a.astype("int32") @ b.astype("int32"))
    assert report.cycles > 0 and exe.program.hardware == VTA


# ---- databases and what tuning keeps ---------------------------------------------------------------------------------


def lines(path: Path) -> list[dict]:
    """Return an exported database without its version; missing fields of workloads have their defaults, and so do
    fields that older entries lack."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    del records[0]["version"]
    added = {"decided_cost": None, "disturbed": None, "rows": None}
    records = [{**added, **record} if "workload" in record else record for record in records]
    return [
        {**record, "workload": workload_from_dict(record["workload"])} if "workload" in record else record
        for record in records
    ]


@versions("shapes.db.xz")
def test_databases_load_with_their_entries(old, tmp_path):
    with tt.ShapeDatabase(unpacked(old / "shapes.db.xz", tmp_path)) as db:
        assert db.check().ok and db.check().entries == 5
        hit = db.match(gemm(384, 256, 128), target=CPU)
        assert (hit.step, hit.entry.cost, hit.entry.config.form) == (1, 1.5e-3, "normal")
        packed = db.match(gemm(16, 512, 512), target=CPU, prepacked=True)
        assert packed.entry.cost == 2.5e-5 and packed.entry.prepacked
        assert db.match(gemm(64, 64, 64, dtype="int8"), target=VTA).entry.cost == 1234
        db.export(tmp_path / "now.jsonl")
    assert lines(tmp_path / "now.jsonl") == lines(old / "shapes.jsonl")


@versions("shapes.jsonl")
def test_exported_databases_are_imported(old, tmp_path):
    with tt.ShapeDatabase(tmp_path / "new.db") as db:
        assert db.import_(old / "shapes.jsonl") == 5
        db.export(tmp_path / "now.jsonl")
    assert lines(tmp_path / "now.jsonl") == lines(old / "shapes.jsonl")


@versions("shapes.db.xz")
def test_searches_that_were_ended_know_their_trials(old, tmp_path):
    with tt.ShapeDatabase(unpacked(old / "shapes.db.xz", tmp_path)) as db:
        past = TrialLog(db).past(gemm(320, 192, 96), CPU)
    assert list(past.values()) == [1e-4, 2e-4, None, 4e-4]
    assert all(config.form == "normal" and config.choice("depth") == 96 for config in past)


@versions("shapes.db.xz")
def test_generations_that_were_ended_go_on(old, tmp_path):
    """Of four candidates of the first shape three were measured."""
    asked = []

    class MadeUp:
        def measure(self, jobs):
            for job in jobs:
                asked.append(job.workload.m)
                yield Measured(job=job, cost=1e-10 * job.workload.macs)

        def close(self):
            pass

    with tt.ShapeDatabase(unpacked(old / "shapes.db.xz", tmp_path)) as db:
        shapes = [gemm(48, 96, 192), gemm(52, 96, 192)]
        report = db.generate(target=CPU, shapes=shapes, measurer=MadeUp(), limit=0, candidates=4, threshold=None)
    assert report.initial == 2
    assert asked == [48, 52, 52, 52, 52]


@versions("costs.json")
def test_cost_models_load_with_their_samples(old):
    residual = Residual.load(old / "costs.json")
    record = json.loads((old / "costs.json").read_text())["samples"]
    assert [[s.group, dict(s.features), s.predicted, s.cost] for s in residual.samples] == record
    space = neighbourhood(gemm(384, 512, 640), CPU)
    known = set().union(*(space.features(config) for config in space.configs(200)))
    assert all(set(sample.features) <= known for sample in residual.samples)


# ---- decisions, machines, results ------------------------------------------------------------------------------------


@versions("decision.json")
def test_decisions_and_machines_are_read(old):
    assert tt.Hardware.load(old / "machine.toml") == CPU
    text = (old / "decision.json").read_text()
    decision, plain = read_decision(text), json.loads(text)
    assert {name: getattr(decision, name) for name in ("mr", "nr", "pack_b")} == {
        name: plain[name] for name in ("mr", "nr", "pack_b")
    }
    assert config_of(decision, gemm(96, 64, 32), tt.Hardware.load("zen4-server-8c")).op == "gemm"


@versions("report.json")
def test_results_have_pages(old):
    report = json.loads((old / "report.json").read_text())
    assert "fused_matmul_relu" in result_page(report, "report.json")


@versions("suite.json")
def test_results_of_suites_have_pages(old):
    suite = json.loads((old / "suite.json").read_text())
    assert suite["rows"][0]["case"] in result_page(suite, "suite.json")


# ---- other versions --------------------------------------------------------------------------------------------------


def saved_as(version: int, tmp_path: Path) -> Path:
    """Write a saved model of another format version."""
    content = json.dumps({"format": "tvm-tiling-executable", "version": version, "libraries": []}).encode()
    (tmp_path / "model.json").write_bytes(content)
    path = tmp_path / "other.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(tmp_path / "model.json", "model.json")
    path.chmod(0o600)
    return path


def program_of(version: int, tmp_path: Path) -> Path:
    content = (OLD[0] / "product.vsim").read_bytes()
    path = tmp_path / "other.vsim"
    path.write_bytes(content[:8] + struct.pack("<I", version) + content[12:])
    return path


def costs_of(version: int, tmp_path: Path) -> Path:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**json.loads((OLD[0] / "costs.json").read_text()), "version": version}))
    return path


def lines_of(version: int, tmp_path: Path) -> Path:
    header, *rest = (OLD[0] / "shapes.jsonl").read_text().splitlines()
    path = tmp_path / "other.jsonl"
    path.write_text("\n".join([json.dumps({**json.loads(header), "version": version}), *rest]) + "\n")
    return path


def result_of(name: str, version: int) -> str:
    return result_page({**json.loads((OLD[0] / name).read_text()), "version": version}, name)


OTHERS = {
    "saved model": (lambda version, at: tt.load(saved_as(version, at)), ModelFormatError, "compile the model again"),
    "program": (
        lambda version, at: tt.load(program_of(version, at)),
        ProgramError,
        "compile and save the program again",
    ),
    "cost model": (lambda version, at: Residual.load(costs_of(version, at)), DatabaseError, "tune and save"),
    "exported database": (
        lambda version, at: tt.ShapeDatabase("sqlite://").import_(lines_of(version, at)),
        DatabaseError,
        "export the database again",
    ),
    "report": (lambda version, at: result_of("report.json", version), ModelFormatError, "measure again"),
    "suite": (lambda version, at: result_of("suite.json", version), ModelFormatError, "measure again"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_versions_are_refused_in_one_sentence(kind, tmp_path):
    read, error, instead = OTHERS[kind]
    oldest = 1 if kind == "saved model" else 0
    with pytest.raises(error, match=re.escape(instead)) as older:
        read(oldest, tmp_path)
    assert f"format version {oldest}; expected" in str(older.value)
    with pytest.raises(error, match=r"format version 99, written by a newer tvm-tiling; expected .*: install") as newer:
        read(99, tmp_path)
    assert all("\n" not in str(found.value) for found in (older, newer))
