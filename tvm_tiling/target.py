"""Which machine a target means: this CPU, another CPU by the name of a preset or a file, or a simulated accelerator,
"vsim/<preset>" or "vsim/<file.toml>", which TVM knows by tags of the same names. No TVM is loaded for targets that are
not TVM's own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import HardwareError
from .hardware.description import Hardware
from .hardware.file import preset_names
from .hardware.machine import Machine

if TYPE_CHECKING:
    import tvm

Target: TypeAlias = "str | Hardware | tvm.target.Target"

PREFIX = "vsim/"
# Of a TVM target, a preset or file; TVM keeps attributes of this kind and refuses others that it does not know.
ATTRIBUTE = "feature.vsim.hardware"


@functools.lru_cache(maxsize=1)
def this_cpu() -> Hardware:
    """The machine this process runs on, detected once."""
    return Hardware.detect()


def hardware_of(target: Target) -> Hardware:
    """The machine that a target means: "llvm" is this CPU, "<preset>" and "<file.toml>" another CPU, "vsim/<preset>"
    and "vsim/<file.toml>" an accelerator, the TVM targets of these names likewise; a Hardware is itself. HardwareError
    for anything else."""
    if isinstance(target, Hardware):
        return target
    kind: Any = getattr(target, "kind", None)  # of a target of TVM's
    if (kind is not None or isinstance(target, str)) and (machine := vsim_hardware(target)) is not None:
        return machine
    named = target if kind is None else str(kind.name)
    if named == "llvm":
        return this_cpu()
    if isinstance(target, str) and (target in preset_names() or target.endswith(".toml")):
        machine = Hardware.load(target)
        if machine.cpu is None:
            raise HardwareError(f"target {target!r} is a simulated accelerator; use '{PREFIX}{target}'")
        return machine
    said = repr(named) if isinstance(named, str) else f"of type {type(named).__name__}"
    raise HardwareError(
        f"target {said} is not served; accepted: 'llvm', a Hardware, 'vsim/<preset>', 'vsim/<file.toml>', the "
        "name or the TOML file of a CPU, or a tvm.target.Target of kind llvm"
    )


def vsim_hardware(target: str | tvm.target.Target) -> Hardware | None:
    """The accelerator that a target names, None for a target that names none. HardwareError where there is no such
    machine, or it is not an accelerator."""
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
