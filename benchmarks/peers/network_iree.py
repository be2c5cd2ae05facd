"""A whole network in IREE, compiled for this CPU from ONNX."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

from ..network_files import Network
from .network import NetworkPeer, Refused, Run

MODULE = "model.vmfb"
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
)


class IreeNetwork(NetworkPeer):
    """A module of IREE's virtual machine on local-task, with a worker for each core."""

    name: ClassVar[str] = "iree"
    needs: ClassVar[tuple[str, ...]] = ("iree.compiler", "iree.runtime")

    @classmethod
    def convert(cls, network: Network) -> None:
        made = network.folder / MODULE
        if made.is_file():
            return
        text = network.folder / "model.mlir"
        _run("iree.compiler.tools.import_onnx", str(network.onnx), "-o", str(text), "--opset-version", "17")
        import iree.compiler.tools

        iree.compiler.tools.compile_file(str(text), output_file=str(made), input_type="auto", extra_args=list(FLAGS))

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import iree.runtime as rt

        rt.flags.parse_flags(f"--task_topology_group_count={cores}")
        config = rt.Config("local-task")
        module = rt.VmModule.mmap(config.vm_instance, str(network.folder / MODULE))
        loaded = rt.load_vm_module(module, config)
        (name,) = [n for n in module.function_names if not n.endswith("$async") and not n.startswith("__")]
        function = loaded[name]
        given = [rt.asdevicearray(config.device, array) for array in network.inputs()]

        def run() -> Any:
            result = function(*given)
            return [part.to_host() for part in (result if isinstance(result, tuple | list) else (result,))]

        return run


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Refused((done.stderr.strip().splitlines() or ["it failed"])[-1])
