"""`tvm-tiling demo`: compile, check and benchmark a network and three matrix multiplications.

No tuning and no download; it takes one or two minutes on two cores.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import typer

from ..atomic_file import atomic_file
from ..measure import machine_record
from ..runtime.threads import limit_libraries
from .demo_files import DIRECTORY, DemoFiles
from .demo_network import NetworkDemonstration, demonstrate_network, network_steps, print_network
from .demo_products import LARGEST, SMALLEST, Demonstration, demo_products, demonstrate, print_products, product_steps
from .demo_rival import DemoError, Progress
from .model_options import require_file
from .output import print_json, stepping

SMALL_RESNET = "small ResNet, 18 layers, 128 x 128"


EXAMPLES = (
    "tvm-tiling demo",
    "tvm-tiling demo --size 256 --json",
    "tvm-tiling demo model.onnx -o model-demo",
)


def command(
    model: str = typer.Argument("", metavar="[MODEL]", help="An ONNX file; default: a small built-in ResNet."),
    size: int = typer.Option(
        LARGEST,
        metavar="N",
        min=SMALLEST,
        max=LARGEST,
        help=f"Size of the matrix multiplications, {SMALLEST} to {LARGEST}.",
    ),
    output: str = typer.Option(
        DIRECTORY, "-o", "--output", metavar="DIR", help="Directory for the model, the executable and the report."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print decisions and measurements as JSON."),
) -> None:
    """Compile a network and three matrix multiplications, and compare their speed with TVM's default pipeline,
    onnxruntime, NumPy and PyTorch. With a MODEL, only that network is compared.

    Leaves model.onnx, its compiled executable model.tar, input.npz and report.html, and prints commands to continue
    with.
    """
    limit_libraries()
    if model:
        require_file(model, "an ONNX file")
    if not output:
        raise DemoError("-o is empty; expected a directory to write to")
    products = [] if model else demo_products(size)
    network = bool(model) or importlib.util.find_spec("onnx") is not None
    files = DemoFiles.prepare(Path(output), model) if network else None
    with stepping(network * network_steps() + product_steps(products) + 1) as step:
        step("loading TVM")
        networks = [_network(model, files, step)] if files else []
        results = [demonstrate(product, step) for product in products]
    machine = machine_record()
    if as_json:
        print_json(
            {
                "machine": machine,
                "networks": [result.to_dict() for result in networks],
                "products": [result.to_dict() for result in results],
                "files": files.to_dict() if files else None,
            }
        )
        return
    _print(machine, networks, results)
    if files:
        _print_files(files)
    else:
        print("the network was skipped because onnx is not installed: pip install 'tvm-tiling[onnx]'")


def _network(model: str, files: DemoFiles, step: Progress) -> NetworkDemonstration:
    if not model:
        from .demo_resnet import resnet_bytes

        with atomic_file(files.model) as file:
            file.write(resnet_bytes())
    return demonstrate_network(model or SMALL_RESNET, files, step)


def _print(machine: dict[str, Any], networks: list[NetworkDemonstration], products: list[Demonstration]) -> None:
    versions = machine["versions"]
    print(f"{machine['cpu']}, {machine['cores']} cores; TVM {versions['apache-tvm']}, NumPy {versions['numpy']}\n")
    for result in networks:
        print_network(result)
        print()
    if products:
        print_products(products)
    measured = [*(result.runs for result in networks), *(result.runs for result in products)]
    if any(run.doubtful for runs in measured for run in runs.values()):
        print("unreliable: other processes used the cores in most samples; repeat the demo on an idle machine")


def _print_files(files: DemoFiles) -> None:
    print(f"\nOpen {files.report} in a browser for the report. Commands to continue with:\n")
    for command in files.next_commands():
        print(f"  {command}")
