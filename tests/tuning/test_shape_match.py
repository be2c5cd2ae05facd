"""Matching: its four steps, ties, equality conditions, padded extents."""

from __future__ import annotations

import random
import time

import pytest
from shapes import CPU, PLAIN, VTA, config, conv, gemm

from tvm_tiling.errors import DatabaseError
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.matching import divisors


@pytest.fixture
def db(tmp_path):
    with ShapeDatabase(tmp_path / "shapes.db") as opened:
        yield opened


def put(db, workload, cost, tile=16, kind="initial", target=PLAIN, **more):
    db.add(workload, config(tile, "gemm" if hasattr(workload, "m") else "conv"), cost, target=target, kind=kind, **more)


def test_no_hit_is_none(db):
    assert db.match(gemm(64, 64, 64), target=PLAIN) is None
    put(db, gemm(64, 64, 64), 100)
    assert db.match(gemm(96, 64, 64), target=PLAIN) is None  # not a multiple
    assert db.match(gemm(32, 32, 32), target=PLAIN) is None  # a divisor is not one either


def test_the_four_steps_in_their_order(db):
    """Each step takes precedence over the next one, whatever the estimates are."""
    shape = gemm(128, 128, 128)
    put(db, gemm(32, 32, 32), 1, tile=4, kind="boundary")
    hit = db.match(shape, target=PLAIN)
    assert (hit.step, hit.entry.config, hit.estimate) == (4, config(4), 64)
    put(db, gemm(64, 64, 64), 100, tile=3)
    hit = db.match(shape, target=PLAIN)
    assert (hit.step, hit.entry.config, hit.estimate) == (3, config(3), 800)
    put(db, shape, 900, tile=2, kind="boundary")
    hit = db.match(shape, target=PLAIN)
    assert (hit.step, hit.entry.config, hit.estimate) == (2, config(2), 900)
    put(db, shape, 1000, tile=1)
    hit = db.match(shape, target=PLAIN)
    assert (hit.step, hit.entry.config, hit.estimate) == (1, config(1), 1000)
    assert hit.entry.workload == shape and hit.entry.kind == "initial"


def test_several_hits_in_a_step_take_the_lowest_estimate(db):
    for m, cost, tile in ((16, 50, 1), (32, 70, 2), (64, 160, 3)):
        put(db, gemm(m, 64, 64), cost, tile)
    assert db.match(gemm(64, 128, 64), target=PLAIN).entry.config == config(2)  # 400, 280, 320
    assert [hit.estimate for hit in db.matches(gemm(64, 128, 64), target=PLAIN)] == [280, 320, 400]


def test_of_equal_estimates_the_larger_shape(db):
    put(db, gemm(16, 64, 64), 50, tile=1)
    put(db, gemm(32, 64, 64), 100, tile=2)
    assert db.match(gemm(64, 64, 64), target=PLAIN).entry.config == config(2)


def test_order_estimate_ranks_all_steps(db):
    shape = gemm(64, 64, 64)
    put(db, shape, 1000, tile=1)
    put(db, gemm(32, 32, 32), 100, tile=2)
    put(db, gemm(16, 16, 16), 10, tile=3, kind="boundary")
    assert db.match(shape, target=PLAIN).step == 1
    hit = db.match(shape, target=PLAIN, order="estimate")
    assert (hit.step, hit.entry.config, hit.estimate) == (4, config(3), 640)
    ranked = db.matches(shape, target=PLAIN, order="estimate")
    assert [(hit.step, hit.estimate) for hit in ranked] == [(4, 640), (3, 800), (1, 1000)]
    with pytest.raises(DatabaseError, match="order = 'best'; expected 'steps', 'estimate'"):
        db.match(shape, target=PLAIN, order="best")


def test_order_estimate_takes_the_earlier_step_of_equal_estimates(db):
    put(db, gemm(64, 64, 64), 800, tile=1)
    put(db, gemm(32, 32, 32), 100, tile=2)
    assert db.match(gemm(64, 64, 64), target=PLAIN, order="estimate").step == 1


def test_every_axis_may_be_a_multiple(db):
    put(db, gemm(4, 6, 10), 3)
    for factors in ((1, 1, 1, 5), (3, 1, 1, 1), (1, 7, 1, 1), (1, 1, 11, 1), (2, 3, 5, 7)):
        m, n, k, batch = factors
        hit = db.match(gemm(4 * m, 6 * n, 10 * k, batch=batch), target=PLAIN)
        assert hit.estimate == pytest.approx(3 * m * n * k * batch)


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "uint8"},
        {"acc_dtype": "int32", "dtype": "uint8"},
        {"trans_b": True},
        {"trans_a": True},
        {"lda": 128},
        {"ldc": 192},
        {"memory_b": "internal"},
    ],
    ids=str,
)
def test_what_a_gemm_must_have_in_common(db, other):
    put(db, gemm(64, 64, 64), 100)
    assert db.match(gemm(64, 64, 64, **other), target=PLAIN) is None
    put(db, gemm(64, 64, 64, **other), 7)
    assert db.match(gemm(64, 64, 64, **other), target=PLAIN).entry.cost == 7


@pytest.mark.parametrize(
    "other",
    [
        {"kh": 1, "padding": (0, 1, 0, 1)},
        {"kh": 6, "kw": 6, "padding": (3, 3, 2, 2)},  # a multiple of the kernel is another kernel
        {"stride": (2, 2)},
        {"dilation": (2, 2), "padding": (2, 2, 2, 2)},
        {"groups": 2},
        {"layout": "NCHW"},
        {"dtype": "uint8"},
        {"transposed": True},
        {"d": 2},  # another number of axes
    ],
    ids=str,
)
def test_what_a_convolution_must_have_in_common(db, other):
    put(db, conv(14, 32, 32), 100)
    assert db.match(conv(28, 32, 64), target=PLAIN).estimate == pytest.approx(800)
    assert db.match(conv(28, 32, 64, **other), target=PLAIN) is None


def test_epilogue_and_packed_weights_are_part_of_the_key(db):
    put(db, gemm(64, 64, 64), 100, epilogue="relu")
    put(db, gemm(64, 64, 64), 90, prepacked=True)
    assert db.match(gemm(64, 64, 64), target=PLAIN) is None
    assert db.match(gemm(64, 64, 64), target=PLAIN, epilogue="relu").entry.cost == 100
    assert db.match(gemm(64, 64, 64), target=PLAIN, prepacked=True).entry.cost == 90
    assert db.match(gemm(64, 64, 64), target=PLAIN, epilogue="relu", prepacked=True) is None


def test_a_depthwise_convolution_is_none_of_other_channels(db):
    put(db, conv(14, 32, 32, groups=32), 100)
    assert db.match(conv(28, 32, 32, groups=32), target=PLAIN).estimate == pytest.approx(400)
    assert db.match(conv(28, 64, 64, groups=64), target=PLAIN) is None


def test_padded_extents_are_matched_where_a_level_pads(db):
    """VTA pads columns and depth to blocks of 16, rows not at all."""
    put(db, gemm(8, 13, 64), 100, target=VTA)
    hit = db.match(gemm(8, 16, 50), target=VTA)  # both are 16 and 64 with their padding
    assert (hit.step, hit.estimate) == (1, 100)
    hit = db.match(gemm(16, 45, 128), target=VTA)  # 48 columns
    assert (hit.step, hit.estimate) == (3, 1200)
    assert db.match(gemm(12, 16, 64), target=VTA) is None  # rows are not padded
    put(db, gemm(8, 13, 64), 100)
    assert db.match(gemm(8, 16, 64), target=PLAIN) is None


def test_one_machine_never_serves_another(db):
    put(db, gemm(64, 64, 64), 100)
    assert db.match(gemm(64, 64, 64), target=VTA) is None
    assert db.match(gemm(64, 64, 64), target=CPU) is None
    renamed = Hardware.neartile(
        buf_a=4096, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256, name="another name"
    )
    assert db.match(gemm(64, 64, 64), target=renamed).entry.cost == 100
    wider = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=32, bw_b=16, macs_per_cycle=256, name="plain")
    assert db.match(gemm(64, 64, 64), target=wider) is None


def test_another_tvm_is_another_fingerprint(db, monkeypatch):
    put(db, gemm(64, 64, 64), 100)
    monkeypatch.setattr("tvm_tiling.tuning.shapes.fingerprint._tvm_version", lambda: "9.9")
    assert db.match(gemm(64, 64, 64), target=PLAIN) is None
    put(db, gemm(64, 64, 64), 7)
    assert [str(holding.fingerprint).split("TVM ")[1] for holding in db.holdings()][1] == "9.9, records of version 1"


def test_nearest_entries_are_those_of_the_least_ratio(db):
    for m, tile in ((10, 1), (60, 2), (65, 3), (200, 4)):
        put(db, gemm(m, 64, 64), 100, tile)
    found = db.nearest(gemm(63, 64, 64), target=PLAIN, limit=3)
    assert [entry.config for entry in found] == [config(3), config(2), config(4)]
    assert db.nearest(gemm(63, 64, 64), target=VTA) == []


def test_matching_agrees_with_a_walk_over_all_entries(db):
    """500 random entries and shapes, against the definition."""
    rng = random.Random(1)
    sizes = (1, 2, 3, 4, 6, 8, 12, 16, 24, 48)

    def shape():
        return gemm(*(rng.choice(sizes) for _ in range(3)), batch=rng.choice((1, 2, 4)))

    entries = {}
    for _ in range(500):
        kind, workload = rng.choice(("initial", "boundary")), shape()
        entries[kind, workload] = Entry(workload=workload, config=config(), cost=rng.randint(1, 10**6), kind=kind)
    db.add_many(entries.values(), target=PLAIN)
    steps = set()
    for _ in range(300):
        wanted = shape()

        def divides(entry, wanted=wanted):
            return all(getattr(wanted, axis) % getattr(entry.workload, axis) == 0 for axis in ("m", "n", "k", "batch"))

        best = {}
        for entry in entries.values():
            same = entry.workload == wanted
            if divides(entry):
                step = {"initial": 1, "boundary": 2}[entry.kind] + (0 if same else 2)
                best[step] = min(best.get(step, 1e300), entry.cost * wanted.macs / entry.workload.macs)
        hit = db.match(wanted, target=PLAIN)
        assert (hit.step if hit else None) == min(best, default=None)
        if hit:
            steps.add(hit.step)
            assert hit.estimate == pytest.approx(best[hit.step])
            lowest = db.match(wanted, target=PLAIN, order="estimate")
            assert lowest.estimate == pytest.approx(min(best.values()))
    assert steps == {1, 2, 3, 4}


def test_divisors():
    for number in (1, 2, 12, 97, 360, 1024, 10007 * 10009):
        if number < 2000:
            assert list(divisors(number)) == [d for d in range(1, number + 1) if number % d == 0]
    assert list(divisors(10007 * 10009)) == [1, 10007, 10009, 10007 * 10009]


def test_axes_too_long_to_be_factored_are_matched_all_the_same(db):
    put(db, gemm(1, 10**6, 1), 5)
    assert db.match(gemm(1, 10**12, 1), target=PLAIN).estimate == pytest.approx(5e6)


@pytest.mark.slow
def test_a_warm_match_among_100000_entries_takes_less_than_50_milliseconds(db):
    """Most of them have the axes in common with which the index starts, so that many rows are visited."""
    rng = random.Random(0)

    def side(alike):
        return 1024 if alike else rng.randint(1, 512) * 8

    rows = {gemm(rng.randint(1, 10**6), side(alike), side(alike)) for alike in (True,) * 84_000 + (False,) * 21_000}
    kinds = ("initial", "boundary")
    db.add_many(
        (Entry(workload=w, config=config(), cost=rng.randint(1, 10**9), kind=rng.choice(kinds)) for w in rows),
        target=PLAIN,
    )
    assert len(rows) >= 100_000
    shapes = [gemm(720720, 4096, 4096), gemm(999983, 4096, 4096), gemm(4096, 4096, 4096), gemm(2520, 5040, 5040)]
    db.match(shapes[0], target=PLAIN)
    for shape in shapes:
        times = []
        for _ in range(3):
            start = time.process_time()  # the database is in this process
            db.match(shape, target=PLAIN)
            times.append(time.process_time() - start)
        assert min(times) < 0.05
