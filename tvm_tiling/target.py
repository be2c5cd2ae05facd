"""The machine that a target names: this CPU, or a preset or TOML file, for accelerators also as "vsim/<preset>", which
is a tag in TVM. TVM is imported only for its own targets."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import HardwareError
from .hardware.description import Hardware
from .hardware.file import preset_names
from .hardware.machine import Machine
from .runtime.threads import requested_thread_count

if TYPE_CHECKING:
    import tvm

Target: TypeAlias = "str | Hardware | tvm.target.Target"

PREFIX = "vsim/"
# The attribute of a TVM target with a preset or file; TVM keeps attributes of this kind and rejects other unknown ones.
ATTRIBUTE = "feature.vsim.hardware"


@functools.lru_cache(maxsize=1)
def this_cpu() -> Hardware:
    """The machine this process runs on, detected once; with as many cores as the environment variable TVM_NUM_THREADS
    had at the start of this process, if that is fewer."""
    found, asked = Hardware.detect(), requested_thread_count()
    return found.with_cores(asked) if found.cpu is not None and asked and asked < found.cpu.cores else found


def hardware_of(target: Target, threads: int | None = None) -> Hardware:
    """The machine that a target names: "llvm" is this CPU; a preset or a TOML file is the machine described there, for
    accelerators also written "vsim/<preset>" and "vsim/<file.toml>", or a TVM target of these names; a Hardware is
    returned unchanged. `threads`: with this number of CPU cores. Raises HardwareError for anything else, WorkloadError
    for an invalid number."""
    found = _hardware_of(target)
    return found if threads is None else found.with_cores(threads)


def _hardware_of(target: Target) -> Hardware:
    if isinstance(target, Hardware):
        return target
    kind: Any = getattr(target, "kind", None)  # of a TVM target
    if (kind is not None or isinstance(target, str)) and (machine := vsim_hardware(target)) is not None:
        return machine
    named = target if kind is None else str(kind.name)
    if named == "llvm":
        return this_cpu()
    if isinstance(target, str) and (target in preset_names() or target.endswith(".toml")):
        found = Hardware.load(target)
        return found if found.cpu is not None else Machine(found).hardware
    said = repr(named) if isinstance(named, str) else f"of type {type(named).__name__}"
    raise HardwareError(
        f"target {said} is not supported; expected 'llvm', a preset, a TOML file, a Hardware, or a tvm.target.Target "
        "of kind llvm"
    )


def vsim_hardware(target: str | tvm.target.Target) -> Hardware | None:
    """The accelerator named by a target, None for other targets. Raises HardwareError if there is no such machine, or
    if it is not an accelerator."""
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
    """Register every accelerator among the presets as a tag of TVM, as in tvm.target.Target("vsim/vta"). TVM calls it
    on import (entry point tvm.backends), so this module must not import TVM itself."""
    import tvm

    for name in preset_names():
        if Hardware.load(name).cpu is None:
            config = {"kind": "llvm", "keys": ["vsim", "cpu"], ATTRIBUTE: name}
            tvm.target.register_tag(f"{PREFIX}{name}", config, override=True)
