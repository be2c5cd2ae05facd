"""The interface of a peer that runs whole networks: files are converted once, then loaded and run."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..network_files import Network

Run = Callable[[], Sequence[np.ndarray]]


class NetworkPeer:
    """A library that runs networks. `name`: its name on the command line; `needs`: required modules; `programs`:
    required commands; `exact`: whether it computes in float32 throughout. Networks are converted and loaded by class
    methods; there are no instances."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    programs: ClassVar[tuple[str, ...]] = ()
    exact: ClassVar[bool] = True

    @classmethod
    def convert(cls, network: Network) -> None:
        """Write the files that :meth:`load` reads to the network's folder; none by default, because the ONNX model is
        read."""

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        """Return a function that runs the network on its inputs with `cores` threads. The next run may overwrite its
        outputs."""
        raise NotImplementedError


class Refused(Exception):
    """A peer does not support this network; the message gives the reason."""


def missing(peer: type[NetworkPeer]) -> list[str]:
    """Return the required modules and commands that are not installed."""
    modules = [name for name in peer.needs if importlib.util.find_spec(name) is None]
    return modules + [name for name in peer.programs if shutil.which(name) is None]
