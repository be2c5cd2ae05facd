"""Subjects of the report tests: a model with real decisions and invented times, a suite's result, programs."""

from __future__ import annotations

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.decide import decide
from tvm_tiling.hardware import Hardware
from tvm_tiling.model.graph import GraphStep
from tvm_tiling.model.profile import Profile, ProfiledStep, ProfiledTask
from tvm_tiling.model.report import Memory, OperatorRecord, Report
from tvm_tiling.report.suite_result import FORMAT, VERSION
from tvm_tiling.report.timed_model import TimedModel
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = Hardware.load("icelake-server-2c")
MACHINE = {
    "cpu": "a <fast> chip",
    "cores": 2,
    "mcpu": "icelake-server",
    "caches": [{"level": 1, "size": 49152, "ways": 12, "line": 64, "cores": 1}],
    "versions": {"numpy": "2"},
    "date": "2026-01-01",
    "commit": None,
    "load": [0.5],
}
PEAK = {
    "gflops_one_core": 100.0,
    "gflops": 200.0,
    "gops_int8_one_core": None,
    "gops_int8": None,
    "bandwidths": [
        {"level": "L2", "capacity": 1 << 20, "gbytes": 200.0},
        {"level": "memory", "capacity": None, "gbytes": 20.0},
    ],
}


def model(operators=12, measured=True):
    """Return a network with convolutions, a matrix multiplication and pooling, slowest first."""
    records = []
    for place in range(operators):
        size = 56 >> (place % 3)
        workload = ConvWorkload(n=1, h=size, w=size, ci=64, co=64 * (1 + place), kh=3, kw=3, padding=(1, 1, 1, 1))
        records.append(_record(f"fused_conv2d{place}_add_relu", "convolution", workload, 0.8 + 0.1 * place, measured))
    records.append(_record("matmul", "gemm", GemmWorkload(m=1, k=2048, n=1000), 1.3, measured))
    records.append(
        OperatorRecord(name="max_pool2d", kind="other", calls=1, flops=0, measured_seconds=1e-4 if measured else None)
    )
    records.sort(key=lambda o: -(o.measured_seconds or o.predicted_seconds or 0.0))
    memory = Memory(activations=6 << 20, weights=9 << 20, constants=100)
    seconds = sum(o.measured_seconds for o in records) if measured else None
    steps = graph() if operators == 12 else ()
    report = Report(operators=tuple(records), seconds=seconds, memory=memory, compile_seconds=3.5, graph=steps)
    rival = {"ratio": 1.25, "status": "ok"}
    return TimedModel(name="net.onnx", report=report, machine=MACHINE, peak=PEAK, spread=1e-4, runs=20, rival=rival)


def graph():
    """Return the steps of model(): each reads from the previous one, and the last convolution from the first as
    well."""
    names = [f"fused_conv2d{place}_add_relu" for place in range(12)] + ["matmul", "max_pool2d"]
    reads = [(n - 1,) for n in range(len(names))]
    reads[11] = (10, 0)
    return tuple(GraphStep(name, read, ("1 × 56 × 56 × 64 float32",)) for name, read in zip(names, reads, strict=True))


def profile():
    """Return three steps on two threads: a parallel one, a sequential one, and a parallel one whose second thread is
    late."""
    names = ("fused_conv2d0_add_relu", "max_pool2d", "fused_conv2d1_add_relu")
    times = ((0.0, 4e-4), (4.1e-4, 5e-4), (5e-4, 9e-4))
    steps = [
        ProfiledStep(name, start, end, {"cycles": 10, "instructions": 20})
        for name, (start, end) in zip(names, times, strict=True)
    ]
    tasks = [
        ProfiledTask(0, 0, 0.0, 3.9e-4, {"cycles": 1000, "instructions": 2500}),
        ProfiledTask(0, 1, 1e-5, 4e-4, {"cycles": 1000, "instructions": 1500}),
        ProfiledTask(2, 0, 5e-4, 9e-4, {"cycles": 2000, "instructions": 1000}),
        ProfiledTask(2, 1, 7e-4, 9e-4, {"cycles": 1000, "instructions": 1000}),
    ]
    return Profile(
        steps=tuple(steps),
        tasks=tuple(tasks),
        threads=2,
        seconds=9e-4,
        unprofiled=8.8e-4,
        runs=11,
        counters=("cycles", "instructions"),
        nodes={"max_pool2d": ("pool <1>",)},
    )


def _record(name, kind, workload, ratio, measured):
    tiling = decide(workload, CPU)
    seconds = tiling.predicted_seconds
    return OperatorRecord(
        name=name,
        kind=kind,
        calls=1,
        flops=workload.flops,
        form=tiling.form,
        why=tiling.why("form"),
        predicted_seconds=seconds,
        measured_seconds=seconds * ratio if measured else None,
        decision=tiling.to_dict(),
        workload=workload.to_dict(),
    )


def _entry(ratio, status="ok"):
    ok = status == "ok"
    figures = {"gops": 50.0 / ratio if ok else None, "ratio": ratio if ok else None, "spread": 0.1 if ok else None}
    reason = "" if ok else "differs from the <right> answer"
    return {"status": status, "reason": reason, "note": "", "library": True, "samples": 5, "doubtful": False, **figures}


def comparison(cases=6):
    """Return a suite's result: two groups, two peers, one wrong result and one missing peer."""
    rows = []
    for place in range(cases):
        peers = {"numpy": _entry(1.5), "torch": _entry(0.7 + 0.1 * place), "none": _entry(1.0, "skipped")}
        rows.append(
            {
                "case": f"g{place % 2} {64 << place}x64x64 float32",
                "group": f"g{place % 2}",
                "dtype": "float32",
                "flops": 2000 << place,
                "bytes": 100,
                "ours": {"status": "ok", "reason": "", "gops": 50.0, "of_roofline": 0.5},
                "peers": peers,
            }
        )
    rows[-1]["peers"]["torch"] = _entry(1.0, "wrong result")
    whole = {"group": "all", "rows": cases, "compared": cases, "ours_not_ok": 0, "geometric_mean": 1.1, "worst": 0.7}
    summary = [{**whole, "worst_case": rows[0]["case"], "share_won": 0.5, "time_ratio": None}]
    settings = {"suite": "gemm", "short": True, "cold": False}
    kept = {"format": FORMAT, "version": VERSION, "settings": settings, "machine": MACHINE, "peak": PEAK}
    return {**kept, "rows": rows, "summary": summary}


def program(blocks=8):
    """Return loads into a double buffer, matrix multiplications on it, and stores of their sums: two operators."""
    build = ProgramBuilder(Hardware.load("neartile"))
    vectors = {"a": At("a", 0, (0, 0, 0, 0, 0, 1), "int8"), "b": At("b", 0, (0, 0, 0, 0, 0, 1), "int8")}
    for name in ("first <block>", "second"):
        build.region(name, workload="gemm 16 64 16")
        for _ in range(blocks):
            for operand, queue in (("a", "load_a"), ("b", "load_b")):
                source, near = At("external", 0, (1,), "int8"), At(operand, 0, (1,), "int8")
                build.append(Opcode.LOAD, queue, (160,), a=source, c=near)
            build.append(Opcode.GEMM, "matrix", (1, 1, 1, 1, 1, 160), **vectors, c=At("acc", 0, (), "int32"))
    return build.build()


def simulation():
    """Return the program's report."""
    return simulate(program())
