"""Everything that can multiply two matrices or convolve, behind one interface."""

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

# The configurations of page 03's table, our own kernel forced: register tile, and how A is read. The seed reads it in
# place; the last two are B with its cures.
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
    """The peers there are, installed or not."""
    return list(_all_peers())


def get_peer(name: str) -> Peer:
    """The peer of that name; SuiteError with the known names otherwise."""
    peers = _all_peers()
    if name not in peers:
        raise SuiteError(f"no peer {name!r}; {nearest(name, peers)}")
    return peers[name]
