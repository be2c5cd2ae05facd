"""SCALE-Sim (package scalesim), a cycle-accurate model of systolic arrays, compared with our simulator.

Its output-stationary dataflow matches our matrix engine, whose multipliers hold their sums. Cycles are its reported
total including the first prefetch; bytes are those counted at its memory interface.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import time

from tvm_tiling.workload import GemmWorkload

from .accel_machine import SUM_BYTES, ArrayMachine, Figures, Layer

NAME = "scalesim"


def available() -> str | None:
    """Return None, or why this peer cannot be used."""
    return None if importlib.util.find_spec("scalesim") else "not installed: scalesim"


def simulate(layer: Layer, machine: ArrayMachine) -> Figures:
    """Simulate the layer on the machine. Its words are elements, so results, of 4 bytes, get a quarter of the words per
    cycle and of the capacity."""
    from scalesim.layout_utils import layouts
    from scalesim.scale_config import scale_config
    from scalesim.single_layer_sim import single_layer_sim
    from scalesim.topology_utils import topologies

    config = scale_config()
    sizes = [2 * machine.buf_a // 1024, 2 * machine.buf_b // 1024, machine.sums // SUM_BYTES // 1024]
    offsets = [0, 10**9, 2 * 10**9]
    words = [machine.bandwidth // SUM_BYTES]
    config.update_from_list(["layer", machine.rows, machine.columns, *sizes, *offsets, "os", "USER", words])
    config.ifmap_sram_bank_num = config.filter_sram_bank_num = 1
    config.ifmap_sram_bank_bandwidth = config.filter_sram_bank_bandwidth = machine.bandwidth
    topology = topologies()
    topology.append_topo_arrays(layer.name, [layer.name, *_shape(layer), 1, 1])
    topology.num_layers, topology.topo_load_flag = 1, True
    run = single_layer_sim()
    with contextlib.redirect_stdout(io.StringIO()):
        run.set_params(layer_id=0, config_obj=config, topology_obj=topology, layout_obj=layouts(), verbose=False)
        start = time.process_time()
        run.run()
        run.calc_report_data()
        seconds = time.process_time() - start
    first = min(run.ifmap_dram_start_cycle, run.filter_dram_start_cycle)
    return Figures(
        cycles=run.overall_cycles,
        before=max(0, -int(first)),
        behind=max(0, int(run.ofmap_dram_stop_cycle) - run.total_cycles),
        moved={
            "a": int(run.ifmap_dram_reads),
            "b": int(run.filter_dram_reads),
            "out": int(run.ofmap_dram_writes) * SUM_BYTES,
        },
        seconds=seconds,
    )


def _shape(layer: Layer) -> list[int]:
    """Return height and width of the image and of a kernel, input and output channels, strides; a matrix multiplication
    in its own format."""
    w = layer.workload
    if isinstance(w, GemmWorkload):
        return [w.m, w.k, 1, w.k, 1, w.n, 1, 1]
    return [w.h, w.w, w.kh, w.kw, w.ci, w.co, *w.stride]
