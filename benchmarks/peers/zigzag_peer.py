"""ZigZag (package zigzag-dse), an analytical model with a search over loop orders, compared with our simulator.

Convolutions are modelled as matrix multiplications: its arrays unroll one dimension of a layer along each side, and
image pixels have two. Cycles are its `latency_total2`, including initial loads and final stores; bytes are the accesses
of its outermost memory.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

from .accel_machine import SUM_BYTES, ArrayMachine, Figures, Layer

NAME = "zigzag"
WITHOUT_LIMIT = 1 << 20  # bits per cycle of the ports between buffers and multipliers
SIDES = ["D1", "D2"]


def available() -> str | None:
    """Return None, or why this peer cannot be used."""
    return None if importlib.util.find_spec("zigzag") else "not installed: zigzag-dse"


def simulate(layer: Layer, machine: ArrayMachine) -> Figures:
    """Simulate the layer on the machine, with the loop order of least latency that it finds."""
    import yaml
    from zigzag.api import get_hardware_performance_zigzag
    from zigzag.datatypes import LayerOperand
    from zigzag.mapping.data_movement import DataDirection

    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: str(Path(folder, f"{name}.yaml")) for name in ("machine", "mapping", "layer")}
            for name, content in (
                ("machine", description(machine)),
                ("mapping", _mapping(machine)),
                ("layer", _layer(layer)),
            ):
                Path(paths[name]).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
            start = time.process_time()
            _, cycles, found = get_hardware_performance_zigzag(
                paths["layer"],
                paths["machine"],
                paths["mapping"],
                opt="latency",
                dump_folder=folder,
                pickle_filename=str(Path(folder, "found.pickle")),
                loma_show_progress_bar=False,
            )
            seconds = time.process_time() - start
    finally:
        logging.disable(level)
    model = found[0][1][0][0]

    def outermost(operand: str, direction: Any) -> int:
        return int(model.memory_word_access[LayerOperand(operand)][-1].get(direction)) * machine.bandwidth

    return Figures(
        cycles=int(cycles),
        before=int(model.data_onloading_cycle),
        behind=int(model.data_offloading_cycle),
        moved={
            "a": outermost("I", DataDirection.RD_OUT_TO_LOW),
            "b": outermost("W", DataDirection.RD_OUT_TO_LOW),
            "out": outermost("O", DataDirection.WR_IN_BY_LOW) + outermost("O", DataDirection.RD_OUT_TO_LOW),
        },
        seconds=seconds,
    )


def description(machine: ArrayMachine) -> dict[str, Any]:
    """Return the machine in its format: two double buffers, the accumulators, and a memory with a port for each
    operand."""
    bits = machine.bandwidth * 8
    free, link = WITHOUT_LIMIT, {"A": "I1", "B": "I2"}
    memories: dict[str, Any] = {
        "sums": _memory(
            machine.sums,
            ["O"],
            [
                _port("r_port_1", free, "O, tl"),
                _port("r_port_2", free, "O, th"),
                _port("w_port_1", free, "O, fh"),
                _port("w_port_2", free, "O, fl"),
            ],
        )
    }
    for name, size in (("A", machine.buf_a), ("B", machine.buf_b)):
        operand = link[name]
        ports = [_port("r_port_1", free, f"{operand}, tl"), _port("w_port_1", free, f"{operand}, fh")]
        memories[f"buffer_{name}"] = _memory(2 * size, [operand], ports)
    memories["memory"] = _memory(
        1 << 32,
        ["I1", "I2", "O"],
        [
            _port("r_port_1", bits, "I1, tl"),
            _port("r_port_2", bits, "I2, tl"),
            _port("r_port_3", bits, "O, tl", "O, th"),
            _port("w_port_1", bits, "I1, fh", "I2, fh", "O, fl", "O, fh"),
        ],
    )
    array = {"unit_energy": 1, "unit_area": 1, "dimensions": SIDES, "sizes": [machine.rows, machine.columns]}
    return {"name": "array", "memories": memories, "operational_array": array}


def _memory(size: int, operands: list[str], ports: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "size": size * 8,
        "r_cost": 1,
        "w_cost": 1,
        "area": 0,
        "latency": 1,
        "auto_cost_extraction": False,
        "operands": operands,
        "ports": ports,
        "served_dimensions": SIDES,
    }


def _port(name: str, bits: int, *allocation: str) -> dict[str, Any]:
    kind = "read" if name.startswith("r") else "write"
    return {"name": name, "type": kind, "bandwidth_min": 8, "bandwidth_max": bits, "allocation": list(allocation)}


def _mapping(machine: ArrayMachine) -> list[dict[str, Any]]:
    sides = {"D1": [f"B, {machine.rows}"], "D2": [f"K, {machine.columns}"]}
    links = {"O": "O", "W": "I2", "I": "I1"}
    return [{"name": "default", "spatial_mapping": sides, "memory_operand_links": links}]


def _layer(layer: Layer) -> list[dict[str, Any]]:
    w = layer.matrix
    return [
        {
            "id": 0,
            "name": "layer",
            "operator_type": "Gemm",
            "equation": "O[b][k]+=W[k][c]*I[b][c]",
            "loop_dims": ["B", "K", "C"],
            "loop_sizes": [w.m, w.n, w.k],
            "operand_precision": {"W": 8, "I": 8, "O": 8 * SUM_BYTES, "O_final": 8 * SUM_BYTES},
            "operand_source": {"I": 0, "W": 0},
        }
    ]
