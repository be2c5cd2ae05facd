"""Machines: their descriptions, the detection of this CPU, presets."""

from .column import Column
from .cpu import Cache, Cpu
from .description import Hardware
from .energy import Energy
from .memory import Level, Memory
from .near_tile import NearTile
from .queues import Queues
from .vector import Vector
from .w_fold import WFold

__all__ = ["Cache", "Column", "Cpu", "Energy", "Hardware", "Level", "Memory", "NearTile", "Queues", "Vector", "WFold"]
