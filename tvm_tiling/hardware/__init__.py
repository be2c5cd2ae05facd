"""Machines: their descriptions, the detection of this CPU, presets."""

from .description import Cache, Cpu, Hardware, NearTile, WFold

__all__ = ["Cache", "Cpu", "Hardware", "NearTile", "WFold"]
