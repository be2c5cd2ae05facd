"""Entries: contents, refusals, export, import and check."""

from __future__ import annotations

import json
import math
import sqlite3

import pytest
from shapes import CPU, PLAIN, VTA, config, conv, gemm

import tvm_tiling as tt
from tvm_tiling.errors import DatabaseError, TilingError
from tvm_tiling.tuning.shapes.database import Holding, ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.fingerprint import Fingerprint, fingerprint_of
from tvm_tiling.tuning.shapes.key import ShapeKey, extents_of, key_of, workload_from_dict

WORKLOADS = [
    gemm(8, 9, 10),
    gemm(8, 9, 10, trans_a=True, trans_b=True, batch=3, lda=16, memory_b="internal"),
    gemm(1, 1, 1, dtype="float32"),
    conv(14, 32, 64),
    conv(14, 32, 64, groups=4, stride=(2, 1), layout="NCHW8c", dilation=(2, 2), padding=(2, 2, 1, 2)),
    conv(9, 4, 8, d=5, kd=3, stride_d=2, padding_d=(1, 0)),
    conv(9, 4, 8, transposed=True, stride=(2, 2), output_padding=(1, 0), stride_d=2, output_padding_d=1),
]


@pytest.fixture
def db(tmp_path):
    with ShapeDatabase(tmp_path / "shapes.db") as opened:
        yield opened


@pytest.fixture
def full(db):
    """Entries of every kind of workload on three machines."""
    for number, workload in enumerate(WORKLOADS):
        op = "gemm" if hasattr(workload, "m") else "conv"
        for target in (PLAIN, VTA):
            db.add(workload, config(number + 1, op), 10.5 + number, target=target, energy_pj=number or None)
            db.add(workload, config(2, op), 0.1, target=target, kind="boundary", epilogue="relu", prepacked=True)
    db.add(gemm(64, 64, 64, dtype="float32"), config(), 1.5e-6, target=CPU)
    return db


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
def test_a_workload_is_its_key_and_its_extents(workload):
    key = key_of(workload, epilogue="relu", prepacked=True)
    assert key.workload(extents_of(workload)) == workload
    assert ShapeKey.from_dict(json.loads(key.text)) == key
    assert workload_from_dict(json.loads(json.dumps(workload.to_dict()))) == workload


def test_keys_are_those_of_databases_made_before_planes_were_added_behind():
    layer = tt.ConvWorkload(n=1, h=9, w=9, ci=4, co=8, kh=3, kw=3)
    assert key_of(layer).digest == "be4bf8e9c4826bf53e6709cb8769765a"


def test_what_is_kept_is_what_was_given(full):
    for number, workload in enumerate(WORKLOADS):
        for target in (PLAIN, VTA):
            hit = full.match(workload, target=target)
            assert (hit.step, hit.entry.workload, hit.entry.cost) == (1, workload, 10.5 + number)
            assert hit.entry.energy_pj == (number or None) and hit.estimate == pytest.approx(10.5 + number)
            hit = full.match(workload, target=target, epilogue="relu", prepacked=True)
            assert (hit.step, hit.entry.epilogue, hit.entry.prepacked) == (2, "relu", True)


def test_of_one_shape_the_cheaper_config_stays(db):
    w = gemm(64, 64, 64)
    db.add(w, config(1), 100, target=PLAIN)
    db.add(w, config(2), 120, target=PLAIN)
    assert db.match(w, target=PLAIN).entry.config == config(1)
    db.add(w, config(3), 80, target=PLAIN)
    assert (db.match(w, target=PLAIN).entry.config, db.match(w, target=PLAIN).estimate) == (config(3), 80)
    db.add(w, config(3), 90, target=PLAIN)  # measured again
    assert db.match(w, target=PLAIN).entry.cost == 90
    assert db.check().entries == 1


def test_a_decision_is_taken_for_its_config(db):
    w = gemm(64, 96, 128, dtype="float32")
    decision = tt.decide(w, CPU)
    db.add(w, decision, 1e-5, target=CPU)
    found = db.match(w, target=CPU).entry.config
    assert found.choice("microkernel")[0] == decision.mr and found.form == decision.form


@pytest.mark.parametrize("cost", [0, -1, math.inf, math.nan, "1", None, True])
def test_costs_that_were_not_measured(db, cost):
    with pytest.raises(DatabaseError, match="expected a measured cost"):
        db.add(gemm(8, 8, 8), config(), cost, target=PLAIN)
    assert db.holdings() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "best"}, "kind = 'best'; expected 'initial', 'boundary'"),
        ({"energy_pj": -1.0}, "energy_pj = -1.0"),
        ({"config": "normal"}, "config = 'normal'; expected a Config or a decision"),
        ({"config": config(op="conv")}, "config of a conv for a gemm"),
        ({"epilogue": 3}, "epilogue = 3"),
        ({"workload": gemm(2**52, 4, 1)}, "multiply-accumulates"),
        ({"workload": gemm(2**54, 1, 1)}, "an axis has"),
    ],
)
def test_entries_that_are_none(db, change, words):
    given = {"workload": gemm(8, 8, 8), "config": config(), "cost": 5, "target": PLAIN, **change}
    with pytest.raises(DatabaseError, match=words):
        db.add(**given)


def test_of_many_all_or_none(db):
    good = Entry(workload=gemm(8, 8, 8), config=config(), cost=1)
    with pytest.raises(DatabaseError):
        db.add_many([good, Entry(workload=gemm(2**52, 4, 1), config=config(), cost=1)], target=PLAIN)
    assert db.holdings() == []


def test_a_target_that_is_none(db):
    with pytest.raises(TilingError, match="expected"):
        db.match(gemm(8, 8, 8), target="vsim/nothing")


def test_holdings_and_entries_by_machine_and_kind(full):
    held = {str(h.fingerprint.machine): (h.initial, h.boundary) for h in full.holdings()}
    assert held == {"plain": (7, 7), "vta": (7, 7), fingerprint_of(CPU).machine: (1, 0)}
    assert full.holdings()[0] == Holding(fingerprint=fingerprint_of(PLAIN), initial=7, boundary=7)
    assert len(list(full.entries())) == 29
    assert len(list(full.entries(target=VTA, kind="boundary"))) == 7
    assert {entry.workload for _, entry in full.entries(target=PLAIN)} == set(WORKLOADS)
    with pytest.raises(DatabaseError, match="kind = 'x'"):
        list(full.entries(kind="x"))


def test_fingerprints_distinguish_machines():
    prints = [fingerprint_of(hardware) for hardware in (PLAIN, VTA, CPU)]
    assert len({own.digest for own in prints}) == 3 and [own.unit for own in prints] == ["cycles", "cycles", "s"]
    for own in prints:
        assert Fingerprint.from_dict(json.loads(json.dumps(own.to_dict()))) == own
        assert own.tvm in str(own) and own.machine in str(own)
    for wrong in ({}, {**prints[0].to_dict(), "cores": "2"}, {**prints[0].to_dict(), "kind": "gpu"}):
        with pytest.raises(DatabaseError, match="fingerprint"):
            Fingerprint.from_dict(wrong)


def test_export_and_import_keep_everything(full, tmp_path):
    assert full.export(tmp_path / "x.jsonl") == 29
    with ShapeDatabase(tmp_path / "other.db") as other:
        other.add(gemm(1, 2, 3), config(), 7, target=PLAIN)
        assert other.import_(tmp_path / "x.jsonl") == 29
        assert other.import_(tmp_path / "x.jsonl") == 29  # again changes nothing
        own = {(fp.digest, str(e)) for fp, e in full.entries()}
        assert {(fp.digest, str(e)) for fp, e in other.entries()} >= own
        assert len(list(other.entries())) == 30 and other.check().ok


def test_export_overwrites_nothing(full, tmp_path):
    (tmp_path / "x.jsonl").write_text("mine")
    with pytest.raises(FileExistsError, match="already exists"):
        full.export(tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == "mine"


def edited(line, **changes):
    return json.dumps({**json.loads(line), **changes})


DAMAGES = {
    "empty": (lambda lines: [], "is empty"),
    "cut short": (lambda lines: lines[:-1], "it is truncated or edited"),
    "half a line": (lambda lines: [*lines[:-1], lines[-1][:40]], "line 33: invalid JSON"),
    "no header": (lambda lines: lines[1:], "line 1: missing header"),
    "another version": (
        lambda lines: [edited(lines[0], version=9), *lines[1:]],
        "line 1: the file has format version 9, written by a newer tvm-tiling; expected 1 or 2 or 3",
    ),
    "a list": (lambda lines: [*lines[:3], "[]", *lines[4:]], "line 4: a list; expected a table"),
    "no fingerprint": (lambda lines: [lines[0], *lines[2:]], "line 2: an entry precedes the first fingerprint"),
    "a wrong cost": (lambda lines: [*lines[:4], edited(lines[4], cost=-5), *lines[5:]], "line 5: cost = -5"),
    "a wrong kind": (lambda lines: [*lines[:4], edited(lines[4], kind="x"), *lines[5:]], "line 5: kind = 'x'"),
    "a wrong cut": (
        lambda lines: [*lines[:4], edited(lines[4], cut={"op": 3}), *lines[5:]],
        "line 5: config: op = 3",
    ),
    "no workload": (lambda lines: [*lines[:4], edited(lines[4], workload={}), *lines[5:]], "line 5: workload"),
    "an impossible size": (
        lambda lines: [*lines[:2], edited(lines[2], workload={"op": "gemm", "m": 0, "n": 1, "k": 1}), *lines[3:]],
        "line 3: gemm: m = 0",
    ),
    "an unknown field": (
        lambda lines: [*lines[:4], edited(lines[4], more=1), *lines[5:]],
        "line 5: field 'more' is unk",
    ),
    "other padding": (
        lambda lines: [
            *lines[:2],
            edited(lines[2], padding=[{"axis": "m", "unit": 3, "factor": 1, "divisor": 1}]),
            *lines[3:],
        ],
        "padding",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_imported_from_a_file_with_a_wrong_line(full, tmp_path, damage):
    full.export(tmp_path / "x.jsonl")
    change, words = DAMAGES[damage]
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    (tmp_path / "y.jsonl").write_text("\n".join(change(lines)))
    before = sorted(str(e) for e in full.entries())
    with ShapeDatabase(tmp_path / "other.db") as other:
        for db in (other, full):
            if damage == "other padding" and db is other:
                continue  # which has no padding yet to conflict with
            with pytest.raises(DatabaseError, match=words):
                db.import_(tmp_path / "y.jsonl")
        assert other.holdings() == []
    assert sorted(str(e) for e in full.entries()) == before and full.check().ok


def test_a_file_that_is_not_there(db, tmp_path):
    with pytest.raises(DatabaseError, match="cannot be read"):
        db.import_(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE entries SET cost = -1 WHERE id = 1", "entry 1: cost = -1.0"),
        ("UPDATE entries SET rate = rate * 2 WHERE id = 1", "entry 1: rate"),
        ("UPDATE entries SET a0 = a0 + 1 WHERE id = 1", "entry 1: a0"),
        ("UPDATE entries SET shape = '1x2' WHERE id = 1", "entry 1: "),
        ("UPDATE entries SET shape = 'x' WHERE id = 1", "entry 1: shape 'x'"),
        ("UPDATE entries SET cut = '{}' WHERE id = 1", "entry 1: config"),
        ("UPDATE entries SET cut = 'x' WHERE id = 1", "entry 1: config: invalid JSON"),
        ("UPDATE entries SET kind = 'old' WHERE id = 1", "entry 1: kind = 'old'"),
        ("UPDATE shape_keys SET digest = 'x' WHERE id = 1", "key 1: digest"),
        ("UPDATE shape_keys SET record = '{' WHERE id = 1", "key 1: "),
        ("UPDATE shape_keys SET padding = '{}' WHERE id = 1", "key 1: padding"),
        ("UPDATE fingerprints SET digest = 'x' WHERE id = 1", "fingerprint 1: digest"),
        ("DELETE FROM shape_keys WHERE id = 1", "references a row of shape_keys that does not exist"),
    ],
)
def test_check_finds(full, tmp_path, statement, words):
    assert full.check().ok and full.check().entries == 29
    with sqlite3.connect(tmp_path / "shapes.db") as connection:
        connection.execute(statement)
    connection.close()
    report = full.check()
    assert not report.ok and any(words in problem for problem in report.problems), report.problems
    assert report.to_dict()["ok"] is False
