"""Names of presets, for shells that complete a line."""

from __future__ import annotations

from ..hardware.file import preset_names


def presets(incomplete: str) -> list[str]:
    """Those that begin so."""
    return [name for name in preset_names() if name.startswith(incomplete)]


def targets(incomplete: str) -> list[str]:
    """What --target takes that begins so."""
    return [name for name in ("llvm", *(f"vsim/{preset}" for preset in preset_names())) if name.startswith(incomplete)]
