"""`tvm-tiling demo`: a network and three matrix products, compiled, checked and measured beside TVM and libraries.

No tuning and no download; about a minute on two cores.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import typer

from ..errors import ModelFormatError
from ..measure import machine_record
from .demo_network import NetworkDemonstration, demonstrate_network, network_steps, print_network
from .demo_products import LARGEST, SMALLEST, Demonstration, demo_products, demonstrate, print_products, product_steps
from .demo_rival import DemoError, Progress
from .output import print_json, stepping

SMALL_RESNET = "small ResNet, 18 layers, 128 x 128"


EXAMPLES = ("tvm-tiling demo", "tvm-tiling demo --size 256 --json", "tvm-tiling demo model.onnx")


def command(
    model: str = typer.Argument("", metavar="[MODEL]", help="An ONNX file; left out: a network of the demo's own."),
    size: int = typer.Option(LARGEST, help=f"Length of the products' edges, {SMALLEST} to {LARGEST}."),
    as_json: bool = typer.Option(False, "--json", help="Print decisions and measurements as JSON."),
) -> None:
    """Compile and run a network, and three matrix products, beside TVM's default pipeline, onnxruntime, NumPy, PyTorch.

    With a MODEL, that network alone.
    """
    if not SMALLEST <= size <= LARGEST:
        raise DemoError(f"--size {size}, accepted: {SMALLEST} to {LARGEST}")
    if model and not Path(model).is_file():
        raise ModelFormatError(f"{model} is not a file; accepted: an ONNX model")
    products = [] if model else demo_products(size)
    network = bool(model) or importlib.util.find_spec("onnx") is not None
    with stepping(network * network_steps() + product_steps(products) + 1) as step:
        step("loading TVM")
        networks = [_network(model, step)] if network else []
        results = [demonstrate(product, step) for product in products]
    machine = machine_record()
    if as_json:
        print_json(
            {
                "machine": machine,
                "networks": [result.to_dict() for result in networks],
                "products": [result.to_dict() for result in results],
            }
        )
        return
    _print(machine, networks, results)
    if not network:
        print("the network was left out, for the onnx package is not installed: pip install 'tvm-tiling[onnx]'")


def _network(model: str, step: Progress) -> NetworkDemonstration:
    if model:
        return demonstrate_network(model, model, step)
    from .demo_resnet import resnet_bytes

    return demonstrate_network(SMALL_RESNET, resnet_bytes(), step)


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
        print("doubtful: other work kept threads off their cores in most samples; repeat this on an idle machine")
