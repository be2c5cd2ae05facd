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
    """A library that runs networks. `name`: as it is chosen; `needs`: modules to be installed; `programs`: commands;
    `exact`: whether it computes in float32 throughout. Networks are converted and loaded by the class; none is
    instantiated."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    programs: ClassVar[tuple[str, ...]] = ()
    exact: ClassVar[bool] = True

    @classmethod
    def convert(cls, network: Network) -> None:
        """Write what :meth:`load` reads into the network's folder; by default nothing, as it reads the ONNX model."""

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        """A function that runs the network on its inputs with `cores` threads. The next run may overwrite its
        outputs."""
        raise NotImplementedError


class Refused(Exception):
    """A peer does not run this network; the message says why."""


def missing(peer: type[NetworkPeer]) -> list[str]:
    """Modules and commands that are not installed."""
    modules = [name for name in peer.needs if importlib.util.find_spec(name) is None]
    return modules + [name for name in peer.programs if shutil.which(name) is None]
