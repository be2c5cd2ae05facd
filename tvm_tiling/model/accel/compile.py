"""Compilation of a model for a machine with an accelerator: partitioning, recording of the accelerator's part,
compilation of the rest for this CPU."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from ...errors import HardwareError
from ...frontend import ImportedModel
from ...hardware.description import Hardware
from ...schedule import Options, this_cpu
from ...schedules.accel import foreign_type
from ...workload import ConvWorkload, GemmWorkload
from ..build import build
from ..kernels import kernels_for
from ..known_configs import Asked
from ..operators import record_of, schedule_operators
from ..passes.constants import Collection
from ..passes.dataflow import is_op
from ..passes.lift import lift_constants
from ..pipeline import fused
from ..quantise.quantise import quantised
from ..report import Memory
from ..signature import Signature
from ..variant_base import VariantParts
from ..variants import variant_of
from .executable import AcceleratedExecutable
from .partition import RegionNames, partition, recorded_operator, with_region_names
from .recurrent_layers import FRACTION, QuantisedLayers, quantised_layers


def compile_for_accelerator(
    imported: ImportedModel, hardware: Hardware, options: Options, calibration: Sequence[Any] | None
) -> AcceleratedExecutable:
    """An executable whose supported operators run on `hardware`, the others on this CPU.

    A float32 model for a machine that only multiplies int8 is quantised by `calibration`: inputs of the model, each an
    array, a tuple of arrays in graph order, or arrays by name. Raises HardwareError if it is missing. On a machine with
    a column engine, recurrent layers run there in its 16-bit fixed point, which needs no calibration.
    """
    start = time.perf_counter()
    layers = quantised_layers(imported.module, hardware)
    if layers is None:
        layers = QuantisedLayers(functions_for(imported, hardware, calibration), (), (), {})
    elif calibration is not None:
        raise HardwareError(
            f"calibration: {hardware.name} computes recurrent layers in 16-bit fixed point with {FRACTION} "
            "fraction bits, whatever their range; expected None"
        )
    else:
        layers = replace(layers, module=in_functions(layers.module, hardware))
    regions = RegionNames()
    programs = [
        with_region_names(program, regions, nodes) for program, nodes in zip(layers.programs, layers.nodes, strict=True)
    ]
    divided = partition(layers.module, hardware, len(programs), configs=options.configs, regions=regions)
    cpu = this_cpu()
    with kernels_for(cpu) as kernels:
        scheduled, operators = schedule_operators([divided.module], cpu, options, kernels, ahead=True)
        lifted, constants = lift_constants(scheduled)
        built = build(lifted, kernels)
    cores = cpu.cpu.cores if cpu.cpu else 1
    collection = Collection()
    numbers = [collection.add(constant.value) for constant in constants]
    kept = collection.together()
    held = sum(collection.size(number) for number in set(numbers))
    variant = variant_of(
        VariantParts(
            library=built.library,
            signature=Signature.of(imported),
            operators=[record_of(operator) for operator in operators],
            memory=Memory(activations=built.activations, weights=0, constants=held),
            constants=numbers,
            store=kept,
            threads=cores,
        )
    )
    names = {operator.name for operator in operators}
    return AcceleratedExecutable(
        variant,
        kept,
        (*programs, *divided.segments),
        {name: why for name, why in {**divided.left, **layers.left}.items() if name in names},
        steps=layers.steps,
        nodes=regions.nodes,
        fingerprint=cpu.fingerprint(),
        cores=cores,
        compile_seconds=time.perf_counter() - start,
    )


def functions_for(imported: ImportedModel, hardware: Hardware, calibration: Sequence[Any] | None) -> tvm.IRModule:
    """The graph of a model in types that `hardware` supports, with one PrimFunc per operator group."""
    return in_functions(quantised(imported, hardware, calibration), hardware)


def in_functions(module: tvm.IRModule, hardware: Hardware) -> tvm.IRModule:
    """A graph with one PrimFunc per operator group."""
    # Operators in types that the vector engine does not support are not fused as an epilogue, which would keep the
    # matrix multiplication on the CPU too.
    return fused(module, lambda func: foreign_type(func, hardware) is not None)


def single(models: Sequence[ImportedModel], hardware: Hardware) -> ImportedModel:
    """The single model to compile for an accelerator. Raises HardwareError for several sizes."""
    if len(models) != 1:
        raise HardwareError(
            f"{hardware.name}: dynamic dimensions are given {len(models)} combinations of sizes; expected one size "
            "for each on accelerators"
        )
    return models[0]


@dataclass(frozen=True)
class AcceleratedOperator:
    """A PrimFunc of a model, the number of its calls, and the workload for which its configuration is requested."""

    name: str
    calls: int
    workload: GemmWorkload | ConvWorkload


def accelerated_operators(
    imported: ImportedModel, hardware: Hardware, calibration: Sequence[Any] | None
) -> list[AcceleratedOperator]:
    """The operators of the model in the order of their first calls; errors as in compile_for_accelerator."""
    mod = functions_for(imported, hardware, calibration)
    values = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    calls = Counter(value.args[0] for value in values if is_op(value, "call_tir"))
    found = []
    for variable, count in calls.items():
        asked, func = Asked(), mod[variable]
        if not isinstance(func, tirx.PrimFunc):
            continue
        recorded = recorded_operator(func, variable.name_hint, hardware, Options(configs=asked))
        if recorded.program is not None and asked.workloads:
            found.append(AcceleratedOperator(variable.name_hint, count, next(iter(asked.workloads))))
    return found
