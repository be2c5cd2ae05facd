"""When instructions run, with given costs: closed forms, stall causes, and comparison with a cycle-by-cycle
simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from accel_programs import MACHINE
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.accel.checks.own_results import OwnResults
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.isa import INSTRUCTION
from tvm_tiling.accel.program.program import Program
from tvm_tiling.accel.program.tables import Memory
from tvm_tiling.accel.timing import event_loop
from tvm_tiling.accel.timing.event_loop import CAUSES, PORTS
from tvm_tiling.accel.timing.timing import Costs, bounds, ordering, queue_busy, time_queues
from tvm_tiling.errors import SimulationError

QUEUES = ("load_a", "load_b", "matrix")


def bare(rows, tokens=()):
    """Return a program of NOPs: `rows` are their queues, `tokens` pairs (giver, taker) of instruction numbers."""
    instructions = np.zeros(len(rows), dtype=INSTRUCTION)
    instructions["queue"] = rows
    instructions["extent"] = 1
    for giver, taker in tokens:
        instructions["signal"][giver, rows[taker]] += 1
        instructions["wait"][taker, rows[giver]] += 1
    return Program(
        hardware=MACHINE, memories=(Memory("a", 1),), queues=QUEUES, tensors=(), regions=(), instructions=instructions
    )


def costs(program, busy, latency=0, fill=0, port=None, servers=(), depth=1 << 20, issue=0, token=0, forwards=False):
    """Return costs from lists, or numbers for all."""
    count = len(program)
    column = lambda values: np.broadcast_to(np.array(values, dtype=np.int64), count).copy()  # noqa: E731
    ports = np.full((count, PORTS), -1)
    ports[:, 0] = -1 if port is None else port
    return Costs(
        busy=column(busy),
        latency=column(latency),
        fill=column(fill),
        port=ports,
        ports=tuple(map(str, range(len(servers)))),
        servers=tuple(servers),
        depth=depth,
        forwards=np.full(count, forwards),
        adds_behind=np.ones(count, dtype=bool),
        issue=issue,
        token=token,
    )


def timed(program, cost, compiled=False):
    return time_queues(program, ordering(program), cost, compiled)


def stalls(timing, queue):
    """Return the nonzero causes of a queue."""
    row = timing.stalls[QUEUES.index(queue)].tolist()
    return {cause: cycles for cause, cycles in zip(CAUSES, row, strict=True) if cycles}


def pipeline(steps, slots):
    """Return `steps` loads, each into the next of `slots` buffers, and the multiplication of each."""
    build = ProgramBuilder(MACHINE, queues=QUEUES)
    source = build.tensor("source", "int8", (steps, 16), role="input", operand="a")
    build.memory("b", 16)
    for step in range(steps):
        near = At("a", step % slots * 16, (1,), "int8")
        build.append(Opcode.LOAD, "load_a", (16,), a=At("external", source.address + step * 16, (1,), "int8"), c=near)
        build.append(
            Opcode.GEMM,
            "matrix",
            (1, 1, 1, 1, 1, 16),
            a=At("a", near.address, (0, 0, 0, 0, 0, 1), "int8"),
            b=At("b", 0, (0, 0, 0, 0, 0, 1), "int8"),
            c=At("acc", step * 4, (), "int32"),
        )
    return build.build()


def test_an_instruction_alone_takes_its_busy_cycles_and_its_latency():
    program = bare([0])
    timing = timed(program, costs(program, 10, 3))
    assert (timing.start.tolist(), timing.end.tolist(), timing.done.tolist(), timing.cycles) == ([0], [10], [13], 13)
    assert not timing.stalls.any()


def test_an_empty_program_takes_no_time():
    program = bare([])
    assert timed(program, costs(program, 0)).cycles == 0


def test_a_result_is_waited_for_through_busy_and_latency_and_the_tokens_way():
    program = pipeline(1, 1)
    timing = timed(program, costs(program, [10, 4], [5, 2], token=3))
    assert timing.start.tolist() == [0, 18]
    assert timing.cycles == 18 + 4 + 2
    assert stalls(timing, "matrix") == {"data": 15, "token": 3}
    assert stalls(timing, "load_a") == {}


def test_an_instruction_that_fills_buffers_needs_its_operands_before_its_turn():
    """The first multiplication fills for 4 cycles after its data arrive, the second one while the first is executed."""
    program = pipeline(2, 2)
    timing = timed(program, costs(program, [10, 14, 3, 14], fill=[0, 4, 0, 4], token=1))
    assert timing.start.tolist() == [0, 15, 10, 29]
    assert stalls(timing, "matrix") == {"data": 14, "token": 1}
    timing = timed(program, costs(program, [10, 2, 10, 2], fill=[0, 4, 0, 4]))
    assert timing.start.tolist() == [0, 14, 10, 24]
    assert stalls(timing, "matrix") == {"data": 10 + 4 + 4 + 4}


def test_it_needs_space_for_its_results_at_its_turn():
    """The third load waits for the first multiplication, which uses its buffer; its data arrive afterwards."""
    program = pipeline(3, 2)
    timing = timed(program, costs(program, [4, 20, 4, 20, 4, 20], fill=[3, 0, 3, 0, 3, 0]))
    assert timing.start.tolist() == [3, 7, 7, 27, 27, 47]
    assert stalls(timing, "load_a") == {"data": 3, "space": 16}


def test_a_token_that_came_before_the_queue_was_free_costs_nothing():
    program = bare([0, 2, 2], [(0, 2)])
    timing = timed(program, costs(program, [4, 10, 1], token=3))
    assert timing.start.tolist() == [0, 0, 10]
    assert stalls(timing, "matrix") == {}


def test_two_slots_where_loads_are_slower():
    """Loads run without a pause, every multiplication follows its own: 10 per step, and the last multiplication."""
    program = pipeline(8, 2)
    timing = timed(program, costs(program, [10, 7] * 8))
    assert timing.start[::2].tolist() == list(range(0, 80, 10))
    assert timing.start[1::2].tolist() == list(range(10, 90, 10))
    assert timing.cycles == 10 * 8 + 7
    assert stalls(timing, "load_a") == {}
    assert stalls(timing, "matrix") == {"data": 10 + 7 * 3}


def test_two_slots_where_gemms_are_slower():
    """The first load is the fill; from then on multiplications run without a pause, and from the third load on loads
    wait for space."""
    program = pipeline(8, 2)
    timing = timed(program, costs(program, [10, 15] * 8))
    assert timing.start[1::2].tolist() == [10 + 15 * step for step in range(8)]
    assert timing.cycles == 10 + 15 * 8
    assert stalls(timing, "matrix") == {"data": 10}
    assert stalls(timing, "load_a") == {"space": 5 * 6}


def test_one_slot_has_no_overlap():
    program = pipeline(8, 1)
    timing = timed(program, costs(program, [10, 15] * 8))
    assert timing.cycles == 8 * 25
    assert stalls(timing, "matrix") == {"data": 8 * 10}
    assert stalls(timing, "load_a") == {"space": 7 * 15}


def test_a_shared_port_serves_one_after_the_other():
    program = bare([0, 1])
    timing = timed(program, costs(program, 10, 2, port=0, servers=(1,)))
    assert (timing.start.tolist(), timing.cycles) == ([0, 10], 22)  # the latency does not occupy the port
    assert stalls(timing, "load_b") == {"port": 10}
    timing = timed(program, costs(program, 10, 2, port=0, servers=(2,)))
    assert (timing.start.tolist(), timing.cycles) == ([0, 0], 12)


def test_a_port_goes_to_whoever_was_ready_first_not_to_the_first_in_the_program():
    # Instruction 0 takes the port until 20. Instruction 3 (load_a) is ready at 5, instruction 4 (load_b) at 1.
    program = bare([2, 1, 0, 0, 1], [])
    cost = costs(program, [20, 1, 5, 7, 8], port=[0, -1, -1, 0, 0], servers=(1,))
    timing = timed(program, cost)
    assert timing.start.tolist() == [0, 0, 0, 28, 20]
    assert stalls(timing, "load_a") == {"port": 23}
    assert stalls(timing, "load_b") == {"port": 19}


def test_dispatch_takes_its_cycles_in_program_order():
    program = bare([0, 0, 1, 0])
    timing = timed(program, costs(program, 1, issue=3))
    assert timing.start.tolist() == [3, 6, 9, 12]
    assert timing.cycles == 13
    assert stalls(timing, "load_a") == {"dispatch": 3 + 2 + 5}
    assert stalls(timing, "load_b") == {"dispatch": 9}


def test_a_queue_of_depth_1_holds_back_those_behind():
    """There is space for a second one when the first starts, for a third when the second does; load_b's comes after all
    of them."""
    program = bare([0, 0, 0, 1])
    timing = timed(program, costs(program, 10, depth=1))
    assert timing.start.tolist() == [0, 10, 20, 10]
    assert stalls(timing, "load_b") == {"dispatch": 10}
    timing = timed(program, costs(program, 10, depth=1, issue=2))
    assert timing.start.tolist() == [2, 12, 22, 14]


def test_a_queue_too_short_for_the_program_is_an_error_that_names_it():
    program = bare([2, 2, 0], [(2, 0)])
    assert timed(program, costs(program, 10, depth=2)).start.tolist() == [10, 20, 0]
    with pytest.raises(
        SimulationError, match=r"queue 'matrix' of depth 1 .*no space for instruction 1 .*instruction 2"
    ):
        timed(program, costs(program, 10, depth=1))


def test_a_surplus_wait_is_a_deadlock_however_deep_the_queues():
    program = bare([2, 0], [(1, 0)])
    program.instructions["wait"][0, 0] = 2
    with pytest.raises(SimulationError, match="deadlock: queue 'matrix'"):
        ordering(program)


def test_results_of_a_queue_come_in_order():
    program = bare([0, 0, 2], [(1, 2)])
    timing = timed(program, costs(program, 1, [50, 0, 0]))
    assert timing.done.tolist() == [51, 51, 52]


def test_two_ports_are_taken_at_once():
    program = bare([0, 1, 2])
    cost = costs(program, [10, 4, 3], port=[0, -1, 1], servers=(1, 1))
    cost.port[1] = (1, 0, -1)
    timing = timed(program, cost)
    assert timing.start.tolist() == [0, 10, 14]  # the second waits for port 0 and has port 1 reserved meanwhile


def access(program, cost, after):
    """Find starts by simulating cycle by cycle, without knowledge of the future."""
    rows, count = program.instructions, len(program)
    start, end, ready, arrived = [None] * count, [None] * count, [None] * count, {}
    done, tokens = [None] * count, {}
    waiting = {queue: [] for queue in range(len(program.queues))}
    free = {queue: 0 for queue in waiting}
    supported = {port: [0] * servers for port, servers in enumerate(cost.servers)}
    front, next_issue, last_done = 0, cost.issue, dict.fromkeys(waiting, 0)
    for now in range(100_000):
        moved = True
        while moved:
            moved = False
            while front < count and now >= next_issue and len(waiting[rows["queue"][front]]) < cost.depth:
                waiting[rows["queue"][front]].append(front)
                arrived[front] = now
                front, next_issue = front + 1, now + cost.issue
                moved = True
            for queue, heads in waiting.items():
                if heads and ready[heads[0]] is None and free[queue] <= now:
                    head = heads[0]
                    wanted = [(source, n) for source in range(len(waiting)) for n in range(rows["wait"][head, source])]
                    begun = now - int(cost.fill[head])  # when its dependences must be satisfied
                    here = arrived[head] <= begun and all(
                        len([t for t in tokens.get((source, queue), ()) if t + cost.token <= begun]) > n
                        for source, n in wanted
                    )
                    own = int(after[head])
                    if here and (own < 0 or done[own] <= begun):
                        ready[head] = now
            heads = [own[0] for own in waiting.values() if own and ready[own[0]] is not None]
            for head in sorted(heads, key=lambda number: (ready[number], number)):
                port = int(cost.port[head, 0])
                if port >= 0 and min(supported[port]) > now:
                    continue
                queue = int(rows["queue"][head])
                start[head], end[head] = now, now + int(cost.busy[head])
                if port >= 0:
                    supported[port][supported[port].index(min(supported[port]))] = end[head]
                waiting[queue].pop(0)
                free[queue] = end[head]
                for source in range(len(waiting)):
                    del tokens.setdefault((source, queue), [])[: rows["wait"][head, source]]
                last_done[queue] = done[head] = max(last_done[queue], end[head] + int(cost.latency[head]))
                for sink in range(len(waiting)):
                    tokens.setdefault((queue, sink), []).extend([done[head]] * rows["signal"][head, sink])
                moved = True
                break
        if all(time is not None for time in start):
            return start, max(done)
    raise AssertionError("no end")


@st.composite
def cases(draw):
    """A legal program, its order with waits for results of its own queues, and costs."""
    count = draw(st.integers(1, 24))
    rows = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=count))
    program = bare(rows, [(i, j) for i, j in pairs if i < j and rows[i] != rows[j]])
    some = lambda least, most: draw(st.lists(st.integers(least, most), min_size=count, max_size=count))  # noqa: E731
    servers = draw(st.lists(st.integers(1, 2), min_size=2, max_size=2))
    own = np.full(count, -1, dtype=np.int64)
    for i, j in draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=count)):
        if i < j and rows[i] == rows[j]:
            own[j] = max(own[j], i)
    none = np.full(count, -1, dtype=np.int64)
    order = replace(ordering(program), own=OwnResults(same=own, other=none, sums=none))
    return (
        program,
        order,
        costs(
            program,
            some(1, 12),
            some(0, 9),
            draw(st.just(0) | st.just(some(0, 9))),
            port=some(-1, 1),
            servers=servers,
            depth=draw(st.integers(1, 4)),
            issue=draw(st.integers(0, 3)),
            token=draw(st.integers(0, 3)),
            forwards=draw(st.integers(0, 3)) == 0,
        ),
    )


@settings(max_examples=150, deadline=None)
@given(cases())
def test_equal_to_a_walk_cycle_by_cycle_and_between_the_bounds(case):
    program, order, cost = case
    timing = time_queues(program, order, cost, compiled=False)
    assert (timing.start.tolist(), timing.cycles) == access(program, cost, cost.after(order.own))
    lower, upper, _ = bounds(program, order, cost)
    assert lower <= timing.cycles <= upper
    rest = timing.cycles - queue_busy(order, cost)[: len(QUEUES)] - timing.stalls.sum(axis=1)  # idle
    assert (timing.stalls >= 0).all() and (rest >= 0).all()
    for queue in range(len(QUEUES)):
        own = program.instructions["queue"] == queue
        assert rest[queue] == timing.cycles - timing.end[own].max(initial=0)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_machine_code_and_plain_python_agree(case):
    pytest.importorskip("numba")
    plain, fast = (time_queues(*case, compiled) for compiled in (False, True))
    for name in ("start", "end", "done", "stalls"):
        assert np.array_equal(getattr(plain, name), getattr(fast, name))
    assert plain.cycles == fast.cycles


def test_without_numba_plain_python_runs_and_machine_code_is_refused(monkeypatch):
    monkeypatch.setattr(event_loop, "_compiled", lambda: None)
    monkeypatch.setattr(event_loop, "WORTH_COMPILING", 0)
    program = pipeline(3, 2)
    assert timed(program, costs(program, 5), compiled=None).cycles == 20
    with pytest.raises(ImportError, match="sim"):
        timed(program, costs(program, 5), compiled=True)


def test_machine_code_is_kept_nowhere_where_no_folder_can_be_written(monkeypatch):
    numba = pytest.importorskip("numba")
    kept = []

    def njit(function=None, cache=False):
        if cache:
            kept.append(True)
            raise RuntimeError("cannot cache function 'run_queues': no locator available")
        return lambda *arguments: function(*arguments)

    monkeypatch.setattr(
        numba, "njit", lambda function=None, **options: (lambda f: njit(f, **options)) if options else njit(function)
    )
    event_loop._compiled.cache_clear()
    try:
        program = pipeline(3, 2)
        assert timed(program, costs(program, 5), compiled=True).cycles == 20 and kept
    finally:
        event_loop._compiled.cache_clear()
