"""Libraries that multiply matrices or convolve, behind one interface."""

from __future__ import annotations

from tvm_tiling.errors import nearest

from ..suite import SuiteError
from .base import Peer, Prepared
from .metaschedule import MetaSchedule
from .numpy_peer import NumPy
from .onnxruntime_peer import OnnxRuntime
from .ours import Ours, OursInFloat32, OursWithLongerRows
from .torch_peer import Torch
from .tvm_peers import DLight, TvmDefault

__all__ = ["DEFAULT_PEERS", "Ours", "Peer", "Prepared", "get_peer", "peer_names"]

# The configurations in the table of the leading-dimension study, our own kernel with a forced register tile and a
# forced way of reading A. The original method reads A in place; the last two are configuration B with its remedies.
CONFIGURATIONS = {
    "A": ((28, 1), "normal"),
    "B": ((14, 2), "normal"),
    "C": ((7, 2), "normal"),
    "D": ((6, 4), "normal"),
    "B-inline": ((14, 2), "inline"),
    "B-pack": ((14, 2), "pack"),
}
DEFAULT_PEERS = ("numpy", "torch", "onnxruntime", "tvm", "dlight")


def _all_peers() -> dict[str, Peer]:
    peers: list[Peer] = [NumPy(), Torch(), OnnxRuntime(), TvmDefault(), DLight(), MetaSchedule()]
    peers += [Ours(name, microkernel, form) for name, (microkernel, form) in CONFIGURATIONS.items()]
    peers += [OursWithLongerRows(16), OursInFloat32()]
    return {peer.name: peer for peer in peers}


def peer_names() -> list[str]:
    """Return all known peers, installed or not."""
    return list(_all_peers())


def get_peer(name: str) -> Peer:
    """Return the peer of that name. Raises SuiteError with the known names if there is none."""
    peers = _all_peers()
    if name not in peers:
        raise SuiteError(f"unknown peer {name!r}; {nearest(name, peers)}")
    return peers[name]
