"""A whole network in LiteRT (TensorFlow Lite), whose CPU kernels come from XNNPACK."""

from __future__ import annotations

from typing import Any, ClassVar

from ..network_files import Network
from .network import NetworkPeer, Run

MODEL = "model.tflite"


class LiteRtNetwork(NetworkPeer):
    """An interpreter of the module converted by litert-torch."""

    name: ClassVar[str] = "litert"
    needs: ClassVar[tuple[str, ...]] = ("ai_edge_litert", "litert_torch")

    @classmethod
    def convert(cls, network: Network) -> None:
        if (network.folder / MODEL).is_file():
            return
        import litert_torch

        built = network.build()
        litert_torch.convert(built.module, built.inputs).export(str(network.folder / MODEL))

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(network.folder / MODEL), num_threads=cores)
        interpreter.allocate_tensors()
        signature = interpreter.get_signature_runner()
        names = sorted(signature.get_input_details(), key=_number)
        given = dict(zip(names, network.inputs(), strict=True))
        details = signature.get_output_details()
        places = [details[name]["index"] for name in sorted(details, key=_number)]
        for name, array in given.items():
            place = signature.get_input_details()[name]
            interpreter.set_tensor(place["index"], array.astype(place["dtype"]))  # token ids are int32 there

        def run() -> Any:
            interpreter.invoke()
            return [interpreter.get_tensor(place) for place in places]

        return run


def _number(name: str) -> tuple[int, str]:
    """Sort names by their number: args_2 comes before args_10."""
    digits = name.rsplit("_", 1)[-1]
    return (int(digits) if digits.isdigit() else -1, name)
