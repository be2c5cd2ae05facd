"""What every language model's peer is: tokens behind other tokens, run again and again."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from ..language_graph import Decoder

Step = Callable[[], np.ndarray]


class DecoderPeer(Protocol):
    """A decoder that is loaded. `name`: as it is chosen; `needs`: modules; `file`: what it reads in the folder that it
    is made of."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    file: ClassVar[str]

    def __init__(self, folder: Path, sizes: Decoder) -> None: ...

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        """What runs `new` tokens behind the caches of `past` ones, any number of times, and returns the logits of the
        last position, float32[words]."""
        ...


def missing(peer: type[DecoderPeer]) -> list[str]:
    """Modules that are not installed."""
    return [name for name in peer.needs if importlib.util.find_spec(name) is None]
