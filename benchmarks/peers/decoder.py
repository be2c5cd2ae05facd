"""The interface of language models' peers: generate tokens after other tokens, repeatedly."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from ..language_graph import Decoder

Step = Callable[[], np.ndarray]


class DecoderPeer(Protocol):
    """A loaded decoder. `name`: its name on the command line; `needs`: required modules; `file`: the file that it reads
    in the model's folder."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    file: ClassVar[str]

    def __init__(self, folder: Path, sizes: Decoder) -> None: ...

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        """Return a function that runs `new` tokens after the caches of `past` ones, any number of times, and returns
        the logits of the last position, float32[words]."""
        ...


def missing(peer: type[DecoderPeer]) -> list[str]:
    """Return the required modules that are not installed."""
    return [name for name in peer.needs if importlib.util.find_spec(name) is None]
