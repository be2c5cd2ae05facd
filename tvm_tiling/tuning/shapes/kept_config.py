"""The configuration of an entry applied to another shape: the tiling is kept, and the loops around its blocks grow."""

from __future__ import annotations

from collections.abc import Iterator

from ...decide.configs.config import Config, Tiling, config_of, tiling_of
from ...decide.surroundings import Surroundings
from ...errors import DatabaseError, HardwareError, UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import GemmWorkload
from .entries import Entry
from .key import Workload

DEPTH = "partition_k"  # the depth of a matrix multiplication's blocks in buffers; 0: all of K


def kept_config(entry: Entry, workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Config | None:
    """Return the entry's configuration as the machine supports it for `workload`, or None.

    A configuration whose blocks hold all of K stores 0, not its extent: if the blocks of a deeper matrix multiplication
    do not fit, they get the depth of the entry's, and sums are accumulated over several of them.
    """
    for config in _configs(entry, workload):
        tiling = tiling_if_possible(config, workload, hardware, prepacked=prepacked)
        if tiling is not None:
            return config if config == entry.config else config_of(tiling, workload, hardware)
    return None


def tiling_if_possible(
    config: Config, workload: Workload, hardware: Hardware, *, prepacked: bool = False
) -> Tiling | None:
    """Return the tiling of a configuration, or None if the machine or the shape does not admit it."""
    try:
        return tiling_of(config, workload, hardware, Surroundings(prepacked=prepacked))
    except (HardwareError, UnsupportedOperator, DatabaseError):
        return None


def _configs(entry: Entry, workload: Workload) -> Iterator[Config]:
    yield entry.config
    choices, known = dict(entry.config.choices), entry.workload
    if not isinstance(workload, GemmWorkload) or not isinstance(known, GemmWorkload) or choices.get(DEPTH) != 0:
        return
    if workload.k > known.k:
        yield Config.of(entry.config.op, entry.config.form, {**choices, DEPTH: known.k})
