"""Decisions for CPUs: invariants for every matrix multiplication on every processor, and decisive cases."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import time
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_tiling as tt
from tvm_tiling.decide.gemm.cache_conflict import is_bad_leading_dimension
from tvm_tiling.decide.gemm.choice import ProductChoice
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.decide.gemm.dot_engine import dot_engine
from tvm_tiling.decide.gemm.gemm_cost import CpuConfig, CpuModel, cheapest
from tvm_tiling.decide.labels import label
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware.description import Cache, Cpu, Hardware
from tvm_tiling.workload import GemmWorkload

ICE_LAKE = Hardware.load("icelake-server-2c")
FEATURES = {
    "x86_64": ((), ("avx2", "fma"), ("avx2", "fma", "avxvnni"), ("avx512f", "avx512bw", "avx512vl", "avx512vnni")),
    "aarch64": (("neon",), ("neon", "dotprod")),
}
NOT_CHOICES = {"mode", "feasible", "reasons"}


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@st.composite
def processors(draw) -> Hardware:
    arch = draw(st.sampled_from(tuple(FEATURES)))
    ways = draw(st.sampled_from((4, 8, 12)))
    line, sets = 64, draw(st.sampled_from((64, 128)))
    caches = [Cache(level=1, size=line * sets * ways, ways=ways, line=line)]
    if draw(st.booleans()):
        size, ways = draw(st.sampled_from(((256 << 10, 4), (1 << 20, 8), (1280 << 10, 20))))
        caches.append(Cache(level=2, size=size, ways=ways, line=line))
        if draw(st.booleans()):
            caches.append(Cache(level=3, size=32 << 20, ways=16, line=line, cores=8))
    cores = draw(st.sampled_from((1, 2, 3, 4, 6, 8, 16, 48, 64)))
    cpu = Cpu(
        arch=arch,
        features=draw(st.sampled_from(FEATURES[arch])),
        vector_bits=draw(st.sampled_from((128, 256, 512) if arch == "x86_64" else (128,))),
        vector_registers=draw(st.sampled_from((16, 32))),
        fma_units=draw(st.sampled_from((1, 2, 4))),
        fma_latency=draw(st.integers(3, 6)),
        cores=cores,
        threads=cores,
        caches=tuple(caches),
        clock_mhz=draw(st.sampled_from((0, 2500.0))),
        priority_ratio=draw(st.sampled_from((0.3, 0.8, 1.0))),
    )
    return Hardware(name="made up", cpu=cpu)


lengths = st.one_of(st.integers(1, 40), st.sampled_from((64, 127, 256, 1000, 1024, 4096)), st.integers(1, 30000))


@st.composite
def products(draw) -> GemmWorkload:
    m, n, k = draw(lengths), draw(lengths), draw(lengths)
    trans_a, trans_b = draw(st.booleans()), draw(st.booleans())
    return GemmWorkload(
        m=m,
        n=n,
        k=k,
        batch=draw(st.sampled_from((1, 1, 2, 5, 64))),
        dtype=draw(st.sampled_from(("float32", "float64", "float16", "bfloat16", "int8", "uint8"))),
        trans_a=trans_a,
        trans_b=trans_b,
        lda=(m if trans_a else k) + draw(st.sampled_from((0, 0, 1, 16))),
        ldb=(k if trans_b else n) + draw(st.sampled_from((0, 0, 1, 16))),
    )


def check_invariants(w: GemmWorkload, hardware: Hardware, t: tt.GemmTiling) -> None:
    """Assert the invariants of every decision."""
    cpu = hardware.cpu
    assert cpu is not None and t.mr and t.nr and t.lanes and t.keep is not None
    engine = dot_engine(w, cpu)
    shares = (t.threads_batch, t.threads_m, t.threads_n, t.threads_k)
    assert all(part is not None and part >= 1 for part in shares)
    assert t.threads_batch * t.threads_m * t.threads_n * t.threads_k <= cpu.cores  # type: ignore[operator]
    assert t.threads_batch <= w.batch  # type: ignore[operator]
    assert 1 <= t.partition_m <= w.m and 1 <= t.partition_k <= w.k
    assert 1 <= t.mr <= w.m and t.lanes == cpu.lanes(engine.acc_bytes)
    assert 0 < t.utilisation <= 1 and t.predicted_seconds > 0  # type: ignore[operator]
    assert t.load_a >= 1 and t.load_b >= 1 and t.feasible and t.mode == "best"
    if t.form == "stream":
        assert (t.mr, t.pack_a, t.pack_b, t.keep, t.split_k) == (w.m, "none", "none", w.m, False)
        assert engine.in_place and t.threads_m == t.threads_k == 1
        return
    check_blocks(w, cpu, t, engine.group)
    check_operands(w, cpu, t, engine.in_place)


def check_blocks(w: GemmWorkload, cpu: Cpu, t: tt.GemmTiling, group: int) -> None:
    assert t.nr % t.lanes == 0  # type: ignore[operator]
    assert (t.mr + 1) * (t.nr // t.lanes) + 1 <= cpu.vector_registers  # type: ignore[operator]
    assert (t.tile_m, t.tile_n) == (t.mr, t.nr)
    assert t.partition_n % t.nr == 0 and t.partition_n < w.n + t.nr
    assert t.partition_m % t.mr == 0 or t.partition_m == w.m
    assert t.split_k == (t.partition_k < w.k)
    assert t.partition_k % group == 0 or t.partition_k == w.k
    # A core has at least one tile, panel or k-block of its share, counted as the loop nest counts them.
    assert t.threads_m <= ceil_div(w.m, t.mr) and t.threads_n <= ceil_div(w.n, t.nr)
    groups = ceil_div(w.k, group)
    assert t.threads_k <= ceil_div(groups, ceil_div(groups, ceil_div(w.k, t.partition_k)))
    assert t.need_acc_buffer == (t.threads_k > 1) == (t.acc_bytes > 0)
    if t.threads_k > 1:
        assert t.acc_bytes == t.threads_k * w.batch * w.m * w.n * (8 if w.dtype == "float64" else 4)


def check_operands(w: GemmWorkload, cpu: Cpu, t: tt.GemmTiling, in_place: bool) -> None:
    """Return which rows of A are read in place, and what is packed."""
    rows_kept = int(cpu.priority_ratio * cpu.caches[0].ways)
    forms = {"none": ("normal", "nocopy"), "inline": ("inline",), "pack": ("pack",)}
    assert t.form in forms[t.pack_a]  # type: ignore[index]
    assert t.keep == {"none": t.mr, "inline": rows_kept, "pack": 0}[t.pack_a]  # type: ignore[index]
    if t.pack_a == "inline":
        assert rows_kept < t.mr
    if not in_place:
        assert (t.pack_a, t.pack_b) == ("pack", "pack")
    if w.trans_b:
        assert t.pack_b == "pack"
    bad = not w.trans_a and is_bad_leading_dimension(w.lda, w.a_bytes, cpu.caches[0], rows=t.mr)
    if in_place and not w.trans_a and t.pack_a != "none":
        assert bad or dot_engine(w, cpu).widens(w.types.a), (
            "rows of A are copied though they neither collide nor are widened"
        )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(products(), processors())
def test_every_decision_is_within_the_machine(w, hardware):
    t = decide_on_cpu(w, hardware)
    check_invariants(w, hardware, t)
    assert t == decide_on_cpu(w, hardware)
    if w.n > 1 or w.m == 1:  # a single column is decided as a row, as it is generated
        assert t == tt.decide(w, hardware)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(products(), processors())
def test_every_choice_has_a_reason_and_is_explained(w, hardware):
    t = decide_on_cpu(w, hardware)
    text = t.explain()
    for field in fields(t):
        value = getattr(t, field.name)
        if field.name in NOT_CHOICES or value is None:
            continue
        assert label(t.op, field.name) in text
        if t.form != "stream":
            assert t.why(field.name) or field.name in ("split_k", "need_acc_buffer", "acc_bytes", "tile_m", "tile_n")
    assert all(getattr(t, reason.field) == reason.value and reason.why for reason in t.reasons)
    assert {"form", "partition_n", "threads_n", "pack_b"} <= {reason.field for reason in t.reasons}
    assert all(reason.why in text for reason in t.reasons)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(products(), processors())
def test_json_holds_the_whole_decision(w, hardware):
    t = decide_on_cpu(w, hardware)
    plain = json.loads(t.to_json())
    assert plain.pop("op") == "gemm"
    plain["reasons"] = tuple(tt.Reason(*reason) for reason in plain["reasons"])
    assert tt.GemmTiling(**plain) == t


@settings(max_examples=200, deadline=None, derandomize=True)
@given(products(), processors(), st.sampled_from(("normal", "nocopy", "inline", "pack", "stream")))
def test_a_forced_algorithm_is_used_or_refused_in_one_sentence(w, hardware, form):
    in_place = dot_engine(w, hardware.cpu).in_place
    try:
        t = decide_on_cpu(w, hardware, form=form)
    except HardwareError as error:
        assert form == "inline" or (form == "stream" and (w.m > 4 or not in_place)) or not in_place
        assert "expected " in str(error) and "\n" not in str(error)
        return
    assert t.form == form and (t.why("form") == "forced" or form == "stream")
    assert {"pack": "pack", "inline": "inline"}.get(form, "none") == t.pack_a
    if form == "nocopy":
        assert t.mr <= hardware.cpu.caches[0].ways
    assert in_place or form == "pack"


@settings(max_examples=100, deadline=None, derandomize=True)
@given(products(), processors(), st.integers(1, 31), st.integers(1, 15))
def test_a_forced_register_tile_is_taken_or_refused(w, hardware, rows, vectors):
    needed, registers = (rows + 1) * vectors + 1, hardware.cpu.vector_registers
    if needed <= registers:
        t = decide_on_cpu(w, hardware, microkernel=(rows, vectors))
        assert (t.mr, t.nr) == (rows, vectors * t.lanes)
        return
    with pytest.raises(HardwareError, match=f"needs {needed} vector registers, this CPU has {registers}"):
        decide_on_cpu(w, hardware, microkernel=(rows, vectors))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(products(), processors())
def test_operands_that_cannot_be_read_in_place_are_packed(w, hardware):
    assert decide_on_cpu(w, hardware, packing="ahead").pack_b == "ahead"
    computed = decide_on_cpu(w, hardware, plain_a=False)
    assert computed.form == "stream" or computed.pack_a == "pack"
    assert decide_on_cpu(w, hardware, plain_b=False).pack_b == "pack"
    blocked = decide_on_cpu(w, hardware, accumulates_in_output=False)
    assert blocked.form == "stream" or blocked.threads_k > 1 or blocked.partition_k == w.k


@settings(max_examples=100, deadline=None, derandomize=True)
@given(products(), processors())
def test_blocks_fit_the_caches(w, hardware):
    t = decide_on_cpu(w, hardware)
    engine, cpu = dot_engine(w, hardware.cpu), hardware.cpu
    if t.form == "stream":
        return
    words = ceil_div(t.partition_k, engine.group)
    assert t.mr * words * engine.acc_bytes <= cpu.caches[0].size or words <= 64
    l2 = cpu.cache(2)
    if l2 is not None and t.pack_b != "none":
        assert t.partition_n * words * engine.acc_bytes <= l2.size or t.partition_n == t.nr


# ---- cases -------------------------------------------------------------------------------------------------------


def cores(count: int, hardware: Hardware = ICE_LAKE) -> Hardware:
    return replace(hardware, cpu=replace(hardware.cpu, cores=count, threads=count))


@pytest.mark.parametrize("count", [8, 16, 64])
def test_few_rows_and_columns_share_the_summed_axis(count):
    t = tt.decide(GemmWorkload(m=64, n=64, k=16384), cores(count))
    assert t.threads_k > 1 and t.need_acc_buffer and t.acc_bytes == t.threads_k * 64 * 64 * 4
    assert t.why("threads_k") != t.why("threads_m")


def test_what_cores_write_for_each_other_is_dear():
    """A packed B that both cores read, and lines of the result in which their columns meet."""
    machine = cores(2).cpu
    free = replace(machine, handed_over_bytes_per_cycle=1e9)

    def dearer(n: int, threads: tuple[int, int, int, int], pack_b: str) -> float:
        w = GemmWorkload(m=96, n=n, k=64)
        config = CpuConfig(threads, 6, 2, w.k, 32, False, 6, pack_b)
        priced, without = (CpuModel(w, cpu, dot_engine(w, cpu)).cycles(config) for cpu in (machine, free))
        return (priced - without) * machine.handed_over_bytes_per_cycle

    assert dearer(128, (1, 2, 1, 1), "pack") == pytest.approx(64 * 128 / 2 * 4, rel=1e-3)
    assert dearer(128, (1, 1, 2, 1), "pack") == dearer(128, (1, 2, 1, 1), "none") == 0
    assert dearer(120, (1, 1, 2, 1), "none") == pytest.approx(96 * 64, rel=1e-3)


@pytest.mark.parametrize(
    ("m", "k", "n", "threads"),
    [
        (197, 768, 192, (2, 1)),  # many rows from the other core, few weights
        (197, 192, 768, (2, 1)),
        (128, 768, 3072, (1, 2)),  # weights from memory, which both cores would read
        (128, 3072, 768, (1, 2)),
    ],
)
def test_layers_are_divided_by_what_other_cores_hold(m, k, n, threads):
    cpu = cores(2).cpu
    costs = replace(cpu.kernel_costs, operand_transfer=1.0)
    machine = replace(cores(2), cpu=replace(cpu, costs=costs, handed_over_bytes_per_cycle=1.5))
    layer = decide_on_cpu(GemmWorkload(m=m, n=n, k=k), machine, packing="ahead")
    assert (layer.threads_m, layer.threads_n) == threads


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("ways", [0.6, 1.0])
@pytest.mark.parametrize("packing", ["run", "ahead"])
def test_results_of_half_precision_hold_no_partial_sums(dtype, ways, packing):
    """They would be rounded after every block of K; the sums of cores that divide K have a buffer in float32."""
    cpu = cores(2).cpu
    machine = replace(cores(2), cpu=replace(cpu, costs=replace(cpu.kernel_costs, l2_ways=ways)))
    for m, n, k in ((42, 4096, 1024), (8, 1024, 4096), (300, 64, 9000), (16, 16, 30000)):
        layer = decide_on_cpu(GemmWorkload(m=m, n=n, k=k, dtype=dtype, acc_dtype=dtype), machine, packing=packing)
        assert layer.partition_k == k or layer.threads_k > 1
    kept = decide_on_cpu(GemmWorkload(m=16, n=64, k=30000, dtype=dtype), cores(1), packing=packing)
    assert kept.partition_k < 30000


def test_rows_of_b_on_huge_pages_evict_each_other_from_l2():
    """The distance of rows tells so only if physical addresses follow it: on huge pages, which large arrays lie on."""
    cpu = cores(2).cpu
    ways = replace(cpu, costs=replace(cpu.kernel_costs, l2_ways=0.6))

    def collides(n, depth):
        w = GemmWorkload(m=64, n=n, k=256)
        return CpuModel(w, ways, dot_engine(w, ways)).collides(depth)

    assert collides(16384, 64) and not collides(2048, 64) and not collides(16400, 64)


@pytest.mark.parametrize("mcpu", ["", "skylake"])
def test_an_unknown_microarchitecture_leaves_one_of_16_registers_free(mcpu):
    """LLVM's general schedule keeps a sum in memory if a tile fills them."""
    machine = Hardware.load("skylake-desktop-8c")
    machine = replace(machine, cpu=replace(machine.cpu, mcpu=mcpu))
    w = GemmWorkload(m=16384, n=72, k=64)
    choice = ProductChoice(w, machine.cpu, packing="ahead", plain_a=True, plain_b=True)
    most = max((rows + 1) * vectors + 1 for rows, vectors in choice.register_tiles(None))
    assert most == (16 if mcpu else 15)
    assert decide_on_cpu(w, machine, microkernel=(4, 3)).mr == 4  # where it is asked for


def test_a_small_right_operand_is_read_from_l1_in_place_too():
    w = GemmWorkload(m=16384, n=50, k=64)
    choice = ProductChoice(w, cores(2).cpu, packing="run", plain_a=True, plain_b=True)
    kernels = {
        config.pack_b: choice.model.parts(config)["kernel"]
        for config in choice.configs(None, (6, 4), whole_k=True)
        if config.threads == (1, 2, 1, 1) and config.rows_outside
    }
    assert kernels["none"] == kernels["pack"]


def test_many_colliding_rows_are_slower_than_as_many_as_ways():
    """4096 x 4096 x 8 on Sapphire Rapids: 33 GFLOP/s in tiles of 30 rows, 60 in tiles of 12."""
    cpu = cores(2).cpu
    machine = replace(cores(2), cpu=replace(cpu, costs=replace(cpu.kernel_costs, colliding_line=0.06)))
    layer = decide_on_cpu(GemmWorkload(m=4096, n=8, k=4096), machine, packing="ahead")
    assert layer.mr <= 1.5 * cpu.cache(1).ways


def test_one_core_never_shares():
    t = tt.decide(GemmWorkload(m=64, n=64, k=16384), cores(1))
    assert (t.threads_batch, t.threads_m, t.threads_n, t.threads_k) == (1, 1, 1, 1)


def test_a_tiny_gemm_stays_on_one_core():
    t = tt.decide(GemmWorkload(m=8, n=8, k=8), cores(64))
    assert t.threads_m == t.threads_n == t.threads_k == 1


def test_a_large_gemm_keeps_all_cores_busy():
    t = tt.decide(GemmWorkload(m=4096, n=4096, k=4096), cores(16))
    assert t.threads_m * t.threads_n * t.threads_k == 16


def test_a_batch_is_shared_first():
    t = tt.decide(GemmWorkload(m=128, n=128, k=128, batch=64), cores(16))
    assert t.threads_batch == 16


def test_a_row_times_a_matrix_is_streamed():
    for trans_b in (False, True):
        t = tt.decide(GemmWorkload(m=1, n=4096, k=4096, trans_b=trans_b), ICE_LAKE)
        assert t.form == "stream" and t.pack_b == "none" and t.load_b == 1


def test_colliding_rows_are_not_read_in_place_beyond_the_ways():
    """1024 floats put every row in one set; 1040 spread them. A tile of at most 12 ways, or a copy."""
    l1 = ICE_LAKE.cpu.caches[0]
    for ld in (1024, 2048, 4096):
        t = tt.decide(GemmWorkload(m=2048, n=1024, k=ld), ICE_LAKE)
        assert t.form != "normal" and (t.keep <= l1.ways or t.pack_a != "none")
    t = tt.decide(GemmWorkload(m=2048, n=1024, k=1040), ICE_LAKE)
    assert t.form == "normal" and t.keep == t.mr


def test_bytes_are_packed_for_their_dot_product():
    for hardware, name in ((ICE_LAKE, "vpdpbusd"), (Hardware.load("skylake-desktop-8c"), "pmaddwd")):
        t = tt.decide(GemmWorkload(m=256, n=256, k=256, dtype="int8"), hardware)
        assert (t.pack_a, t.pack_b, t.form) == ("pack", "pack", "pack") and name in t.why("form")


def test_shapes_of_networks_take_milliseconds():
    shapes = [(m, n, k) for m in (1, 49, 196, 784, 3136) for n, k in ((64, 147), (256, 64), (512, 4608), (1000, 2048))]
    shapes += [(128, 3072, 768), (128, 768, 3072), (512, 512, 512), (1024, 1024, 1024), (4096, 4096, 4096)]
    for hardware in (ICE_LAKE, cores(16), Hardware.load("zen4-server-8c")):
        taken = [min(decision_time(GemmWorkload(m=m, n=n, k=k), hardware) for _ in range(4)) for m, n, k in shapes]
        # 1.5 to 5 ms, depending on the processor and the load of its other thread.
        assert statistics.median(taken) < 0.01, f"{statistics.median(taken) * 1e3:.1f} ms on {hardware.name}"


def decision_time(w: GemmWorkload, hardware: Hardware) -> float:
    """Return seconds of processor time, which other load on the machine does not increase."""
    start = time.process_time()
    tt.decide(w, hardware)
    return time.process_time() - start


# ---- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"form": "fast"}, "algorithm = 'fast' is not a kernel variant"),
        ({"microkernel": (30, 4)}, "needs 125 vector registers, this CPU has 32"),
        ({"microkernel": (0, 4)}, "(m, z) of at least 1"),
        ({"microkernel": "4x4"}, "two whole numbers"),
        ({"microkernel": (4, 4, 4)}, "two whole numbers"),
        ({"microkernel": (4.0, 4)}, "two whole numbers"),
        ({"microkernel": (4, 4), "form": "stream"}, "no register tile"),
        ({"microkernel": (4, 4), "form": "inline"}, "algorithm = 'inline' copies rows beyond the 9"),
        ({"form": "stream"}, "supports at most"),
    ],
)
def test_what_cannot_be_forced(options, part):
    with pytest.raises(HardwareError) as caught:
        decide_on_cpu(GemmWorkload(m=64, n=64, k=64), ICE_LAKE, **options)
    text = str(caught.value)
    assert part in text and "expected " in text and "\n" not in text


@pytest.mark.parametrize("form", ["normal", "nocopy", "inline", "stream"])
def test_forms_that_bytes_cannot_take(form):
    with pytest.raises(HardwareError, match=r"int8.*expected "):
        decide_on_cpu(GemmWorkload(m=8, n=64, k=64, dtype="int8"), ICE_LAKE, form=form)


def test_a_machine_without_a_cpu():
    with pytest.raises(HardwareError, match=r"neartile has no CPU; expected "):
        decide_on_cpu(GemmWorkload(m=8, n=8, k=8), Hardware.load("neartile"))


@pytest.mark.parametrize(
    ("batch", "count", "shares"), [(12, 8, (4, 1, 2, 1)), (3, 2, (1, 1, 2, 1)), (8, 8, (8, 1, 1, 1))]
)
def test_a_batch_is_shared_by_the_cheapest_factorisation(batch, count, shares):
    """Twelve on eight cores would leave half of them idle in the second round."""
    hardware, workload = cores(count), GemmWorkload(m=64, n=64, k=64, batch=batch)
    t = tt.decide(workload, hardware)
    assert (t.threads_batch, t.threads_m, t.threads_n, t.threads_k) == shares
    model = CpuModel(workload, hardware.cpu, dot_engine(workload, hardware.cpu))

    def cycles(threads: tuple[int, ...]) -> float:
        vectors, outside = t.nr // t.lanes, t.inner_order == "mn"
        return model.cycles(CpuConfig(threads, t.mr, vectors, t.partition_k, t.partition_n, outside, t.keep, t.pack_b))

    every = [s for s in itertools.product(range(1, count + 1), repeat=3) if math.prod(s) == count and s[0] <= batch]
    assert len(every) > 2
    assert all(cycles(shares) <= cycles((*s, 1)) for s in every)


@pytest.mark.parametrize("size", [256, 1024])
def test_float64_costs_twice_float32(size):
    single, double = (
        tt.decide(GemmWorkload(m=size, n=size, k=size, dtype=dtype), ICE_LAKE) for dtype in ("float32", "float64")
    )
    assert 1.8 < double.predicted_seconds / single.predicted_seconds < 2.3
    assert double.utilisation > 0.85


@pytest.mark.parametrize("m, n, k", [(1, 4096, 64), (7, 33, 2048), (96, 196, 576)])
def test_candidates_are_left_out_by_a_true_lower_bound(m, n, k):
    cpu = tt.Hardware.load("zen4-server-8c").cpu
    choice = ProductChoice(tt.GemmWorkload(m=m, n=n, k=k), cpu, packing="run", plain_a=True, plain_b=True)
    priced = [(choice.model.cycles(config), config) for config in choice.configs(None, None, whole_k=False)]
    assert all(choice.model.least(config) <= cycles for cycles, config in priced)
    configs = choice.configs(None, None, whole_k=False)
    assert cheapest(configs, choice.model.least, choice.model.cycles) == min(priced, key=lambda found: found[0])
