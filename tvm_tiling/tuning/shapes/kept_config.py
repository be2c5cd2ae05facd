"""The configuration of an entry for another shape: it is kept, and the loops around its blocks grow (page 02)."""

from __future__ import annotations

from collections.abc import Iterator

from ...decide.configs.config import Config, Tiling, config_of, tiling_of
from ...decide.surroundings import Surroundings
from ...errors import DatabaseError, HardwareError, UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import GemmWorkload
from .entries import Entry
from .key import Workload

DEPTH = "partition_k"  # of a product's blocks in buffers; 0: all of k


def kept_config(entry: Entry, workload: Workload, hardware: Hardware, *, prepacked: bool = False) -> Config | None:
    """The entry's configuration as the machine can do it for `workload`, None where it cannot.

    A configuration whose blocks hold all of k says so, and not how much that was: where a deeper product's do not fit,
    they are as deep as the entry's were, and sums are added up over several of them.
    """
    for config in _configs(entry, workload):
        tiling = tiling_if_possible(config, workload, hardware, prepacked=prepacked)
        if tiling is not None:
            return config if config == entry.config else config_of(tiling, workload, hardware)
    return None


def tiling_if_possible(
    config: Config, workload: Workload, hardware: Hardware, *, prepacked: bool = False
) -> Tiling | None:
    """The decision that a configuration stands for, None where the machine or the shape does not admit it."""
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
