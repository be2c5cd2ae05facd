"""Models for machines that multiply 8-bit integers: quantised by calibration data, or as already quantised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax

from ...errors import HardwareError
from ...frontend import ImportedModel
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ..passes.simplify import simplify
from .arithmetic import WholeNumbers
from .graph import with_quantised_tensors
from .integers import holds_quantised, in_integers
from .ranges import check_calibration

MULTIPLIERS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d", "relax.matmul")


def quantised(imported: ImportedModel, hardware: Hardware, calibration: Sequence[Any] | None) -> tvm.IRModule:
    """The model's graph in types that `hardware` multiplies.

    A model with quantised tensors is used as it is, in integers. A float32 model is quantised if there is calibration
    data, and stays in floats if there is none and the machine multiplies floats. Raises HardwareError if it does not.
    """
    if calibration is not None:
        check_calibration(calibration)
    mod = simplify(imported.module)
    if holds_quantised(mod):
        return simplify(in_integers(mod, WholeNumbers()))
    floats = _multiplies_floats(mod)
    machine = Machine(hardware)
    if calibration is not None and machine.takes("int8"):
        return simplify(in_integers(simplify(with_quantised_tensors(imported, mod, calibration)), WholeNumbers()))
    if floats and not machine.takes("float32"):
        if calibration is not None:
            raise HardwareError(
                f"{hardware.name} supports neither float32 nor int8; expected a machine with one of them"
            )
        raise HardwareError(
            f"{hardware.name} does not support float32 matrix multiplication; use calibration=[inputs] to quantise the "
            "model to int8, or a model that is quantised (QDQ)"
        )
    return mod


def _multiplies_floats(mod: tvm.IRModule) -> bool:
    """Return whether there are float matrix multiplications or convolutions."""
    found = []

    def note(expr: object) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name in MULTIPLIERS:
            found.append(str(expr.args[0].ty.dtype))

    relax.analysis.post_order_visit(mod["main"], note)
    return any(dtype.startswith("float") for dtype in found)
