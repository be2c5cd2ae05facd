"""Token generation with a decoder model: greedy, or sampled from the most likely tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import WorkloadError
from .executable import Executable
from .session import Session

_IDS = ("input_ids", "tokens", "ids")
_MASK, _PLACES = "attention_mask", "position_ids"


@dataclass(frozen=True)
class Generated:
    """New `tokens` after a prompt of `prompt` tokens. `prompt_seconds` is the time of the prompt's run, which produces
    the first of them, `seconds` that of all others.
    """

    tokens: tuple[int, ...]
    prompt: int
    prompt_seconds: float
    seconds: float

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second."""
        return self.prompt / self.prompt_seconds

    @property
    def rate(self) -> float:
        """New tokens per second after the first; 0 if there is only one."""
        return (len(self.tokens) - 1) / self.seconds if len(self.tokens) > 1 else 0.0


def generate(
    executable: Executable,
    tokens: Sequence[int],
    max_new: int = 64,
    *,
    top_p: float | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    stop: Collection[int] | None = None,
    on_token: Callable[[int], Any] | None = None,
) -> Generated:
    """Generate up to `max_new` tokens after `tokens` with `executable`, a model that maps token ids to logits; a
    session keeps its caches.

    Greedy if `top_p` is omitted; otherwise each token is sampled, with `seed`, from the most likely tokens with a total
    probability of `top_p`, after division of the logits by `temperature`. One of the `stop` tokens ends the generation,
    and is the last token; by default, those named in a GGUF file.

    `on_token` is called with each token. Raises WorkloadError for a model with other inputs, and for numbers out of
    range.
    """
    known = list(map(int, tokens))
    if not known:
        raise WorkloadError("tokens is empty; expected one or more ids")
    for called, value, fits in (
        ("max_new", max_new, isinstance(max_new, int) and max_new >= 1),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1),
        ("temperature", temperature, temperature > 0),
    ):
        if not fits:
            raise WorkloadError(f"{called} = {value!r}; expected {_RANGES[called]}")
    ends = executable.signature.end_tokens if stop is None else stop
    step = _Steps(executable, len(known) + max_new)
    draw = np.random.default_rng(seed)
    found: list[int] = []
    start = time.perf_counter()
    prompt_seconds = 0.0
    new = known
    while len(found) < max_new:
        logits = step.run(known, new)
        token = _most_likely(logits) if top_p is None else _drawn(logits, top_p, temperature, draw)
        if not found:
            prompt_seconds = time.perf_counter() - start
        found.append(token)
        known.append(token)
        new = [token]
        if on_token is not None:
            on_token(token)
        if token in ends:
            break
    seconds = time.perf_counter() - start - prompt_seconds
    return Generated(tuple(found), len(known) - len(found), prompt_seconds, seconds)


_RANGES = {"max_new": "a whole number from 1", "top_p": "a number above 0, up to 1", "temperature": "a number above 0"}


class _Steps:
    """Runs of a decoder: with its caches in a session, or without caches on all tokens again."""

    def __init__(self, executable: Executable, room: int) -> None:
        signature = executable.signature
        kinds = dict(zip(signature.input_names, signature.input_dtypes, strict=True))
        ids = next((name for name in _IDS if name in kinds), None)
        if ids is None or "int" not in kinds[ids]:
            names = ", ".join(map(repr, kinds))
            raise WorkloadError(f"the model's inputs are {names}; expected one of token ids, named {_IDS[0]!r}")
        self._kinds, self._ids, self._executable = kinds, ids, executable
        self._session: Session | None = None
        if any(name not in (ids, _MASK, _PLACES) for name in kinds):
            self._session = executable.session(room=room)

    def run(self, known: Sequence[int], new: Sequence[int]) -> np.ndarray:
        """The logits after the last token; `new` are the tokens of `known` that have not been processed yet."""
        if self._session is None:
            new = known
        given = {self._ids: np.array([new])}
        if _MASK in self._kinds:
            given[_MASK] = np.ones((1, len(known)))
        if _PLACES in self._kinds:
            given[_PLACES] = np.arange(len(known) - len(new), len(known))[None]
        inputs = {name: value.astype(self._kinds[name]) for name, value in given.items()}
        result = self._executable.run(inputs) if self._session is None else self._session.run(**inputs)
        results = result if isinstance(result, tuple) else (result,)
        logits = next((each for each in results if each.ndim == 3 and each.shape[0] == 1), None)
        if logits is None:
            raise WorkloadError("the model returns no logits; expected an output of 1 x length x vocabulary")
        return np.asarray(logits[0, -1], np.float32)


def _most_likely(logits: np.ndarray) -> int:
    if not np.isfinite(logits).any():
        raise WorkloadError("the model's logits are NaN; expected numbers")
    return int(np.nanargmax(logits))


def _drawn(logits: np.ndarray, top_p: float, temperature: float, draw: np.random.Generator) -> int:
    """A token sampled from the most likely ones with a total probability of `top_p`."""
    _most_likely(logits)
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - np.nanmax(scaled))
    weights = np.nan_to_num(weights)
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order])
    kept = order[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]
    return int(draw.choice(kept, p=weights[kept] / weights[kept].sum()))
