"""Targets of the simulated accelerator: "vsim/<preset>", "vsim/<file.toml>", and TVM's tags of the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import HardwareError
from .hardware.description import Hardware
from .hardware.file import preset_names
from .hardware.machine import Machine

if TYPE_CHECKING:
    import tvm

PREFIX = "vsim/"
# Of a TVM target, a preset or file; TVM keeps attributes of this kind and refuses others that it does not know.
ATTRIBUTE = "feature.vsim.hardware"


def vsim_hardware(target: str | tvm.target.Target) -> Hardware | None:
    """The accelerator that a target names, None for a target that names none. HardwareError where there is no such
    machine, or it is no accelerator."""
    if isinstance(target, str):
        name = target.removeprefix(PREFIX) if target.startswith(PREFIX) else None
    else:
        name = target.attrs.get(ATTRIBUTE)
    if name is None:
        return None
    try:
        return Machine(Hardware.load(str(name))).hardware
    except HardwareError as error:
        raise HardwareError(f"target '{PREFIX}{name}': {error}") from None


def register_tags() -> None:
    """Make every accelerator among the presets a tag of TVM, so that tvm.target.Target("vsim/vta") is one. TVM calls it
    when it is imported (entry point tvm.backends), so this module must not import TVM itself."""
    import tvm

    for name in preset_names():
        if Hardware.load(name).cpu is None:
            config = {"kind": "llvm", "keys": ["vsim", "cpu"], ATTRIBUTE: name}
            tvm.target.register_tag(f"{PREFIX}{name}", config, override=True)
