"""Consecutive runs with states: outputs that are inputs of the next run are kept between the runs, and updated in place
if possible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import WorkloadError, nearest
from ..runtime.arrays import aligned_empty
from ..sizes import Named
from .planned_variant import PlannedVariant
from .variants import AnyVariant

ROOM = 2048  # default capacity, in rows, of a cache that is updated in place
# Names of the inputs and outputs of a state, as chosen by exporters.
_NAMES = (
    (r"^present(_key_values)?\b", "past_key_values"),
    (r"^present", "past"),
    (r"^(h|c)n\b", r"\g<1>0"),
    (r"_out\b", "_in"),
    (r"^next_", ""),
    (r"^new_", ""),
)


@dataclass(frozen=True)
class _State:
    """An output that is an input of the next run, by their numbers; `axis` is the row axis of a cache, which grows with
    a run or has a capacity of `room`."""

    output: int
    input: int
    in_place: bool
    axis: int | None


class Session:
    """A model's states between its runs: key/value caches, recurrent states. Created by :meth:`Executable.session`.

    `run` takes the other inputs and returns the other outputs. A cache that the model appends to is allocated once with
    a capacity of `room` rows, and only new rows are written; other states are passed from one run to the next. For one
    caller at a time. Raises WorkloadError if the model was compiled for several sets of sizes, or no output is a state.
    """

    def __init__(self, variants: Sequence[AnyVariant], states: Mapping[str, str] | None, room: int) -> None:
        if len(variants) != 1:
            raise WorkloadError(
                "a session requires a model compiled for one set of sizes, dynamic or not; this one was "
                f"compiled for {len(variants)}"
            )
        if isinstance(room, bool) or not isinstance(room, int) or room < 1:
            raise WorkloadError(f"room = {room!r}; expected a whole number of rows of at least 1")
        self._variant, self._signature, self.room = variants[0], variants[0].signature, room
        self._states = self._found(states)
        if not self._states:
            outputs = ", ".join(map(repr, self._signature.output_names))
            raise WorkloadError(f"no output is named as a state: {outputs}; expected states={{output: input}}")
        self._values: dict[int, np.ndarray] = {}  # by the number of the input

    @property
    def states(self) -> dict[str, str]:
        """Outputs that are states, each with its input."""
        signature = self._signature
        return {signature.output_names[s.output]: signature.input_names[s.input] for s in self._states}

    @property
    def in_place(self) -> bool:
        """Return whether every state is updated in place."""
        return all(state.in_place for state in self._states)

    def reset(self) -> None:
        """Discard the states: the next run is a first one."""
        self._values = {}

    def run(self, **inputs: Any) -> Any:
        """Run the model: takes the inputs that are not states, and returns the outputs that are not; several as a
        tuple.

        States given by name replace the stored ones, and are copied. Raises WorkloadError as :meth:`Executable.run`
        does, and if a cache has no room for the new rows; the states are then unchanged.
        """
        signature = self._signature
        arrays = signature.arrays(self._given(inputs), {})
        self._variant.accept(arrays)
        results = self._run(arrays)
        for state in self._states:
            self._values[state.input] = results[state.output]
        own = {state.output for state in self._states}
        rest = [result for number, result in enumerate(results) if number not in own]
        return rest[0] if len(rest) == 1 else tuple(rest)

    # ---- inputs and outputs of a run --------------------------------------------------------------------------------

    def _given(self, inputs: Mapping[str, Any]) -> list[Any]:
        """All inputs in order: those given, and the states."""
        names = self._signature.input_names
        for name in inputs:
            if name not in names:
                raise WorkloadError(f"the model has no input {name!r}; {nearest(name, names)}")
        own = {state.input: state for state in self._states}
        missing = [name for number, name in enumerate(names) if name not in inputs and number not in own]
        if missing:
            raise WorkloadError(f"input {missing[0]!r} is missing; the session keeps {', '.join(self.states.values())}")
        sizes = self._sizes(inputs)
        found = []
        for number, name in enumerate(names):
            if name in inputs and number in own:
                found.append(_copied(inputs[name]))
            elif name in inputs:
                found.append(inputs[name])
            elif number in self._values:
                found.append(self._values[number])
            else:
                found.append(self._first(own[number], sizes))
        return found

    def _sizes(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """Values of the dynamic dimensions of the given inputs, by name."""
        signature, found = self._signature, {}
        for name, shape in zip(signature.input_names, signature.input_shapes, strict=True):
            if name in inputs:
                for extent, size in zip(shape, np.shape(inputs[name]), strict=False):
                    if isinstance(extent, Named):
                        found[extent.name] = int(size)
        return found

    def _first(self, state: _State, sizes: Mapping[str, int]) -> np.ndarray:
        """A state before the first run: zeros; caches updated in place have their full capacity, others no rows."""
        signature = self._signature
        shape = []
        for axis, extent in enumerate(signature.input_shapes[state.input]):
            if axis == state.axis:
                shape.append(self.room if state.in_place else 0)
            elif isinstance(extent, int):
                shape.append(extent)
            elif isinstance(extent, Named) and extent.name in sizes:
                shape.append(sizes[extent.name])
            else:
                name = signature.input_names[state.input]
                raise WorkloadError(
                    f"input {name!r} has {extent} along axis {axis}, which is not determined by another "
                    "input; give it once"
                )
        value = aligned_empty(tuple(shape), signature.input_dtypes[state.input])
        value[...] = 0
        return value

    def _run(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        kept = {state.output: state.input for state in self._states if state.in_place}
        if kept and isinstance(self._variant, PlannedVariant):
            return self._variant.run_in_place(arrays, kept)
        results = self._variant.run(arrays)
        return results if isinstance(results, tuple) else (results,)

    # ---- outputs that are states ------------------------------------------------------------------------------------

    def _found(self, states: Mapping[str, str] | None) -> tuple[_State, ...]:
        signature = self._signature
        if states is None:
            states = {}
            for output in signature.output_names:
                for pattern, name in _NAMES:
                    named = re.sub(pattern, name, output, count=1)
                    if named != output and named in signature.input_names and named not in states.values():
                        states[output] = named
                        break
        appended = dict(self._variant.in_place) if isinstance(self._variant, PlannedVariant) else {}
        found = []
        for output, name in states.items():
            for given, known in ((output, signature.output_names), (name, signature.input_names)):
                if given not in known:
                    raise WorkloadError(f"states names {given!r}; {nearest(given, known)}")
            place, number = signature.output_names.index(output), signature.input_names.index(name)
            in_place = appended.get(place) == number
            found.append(_State(place, number, in_place, self._axis(number, in_place)))
        return tuple(found)

    def _axis(self, number: int, in_place: bool) -> int | None:
        """The row axis of a cache: dynamic, and not shared with other inputs; of a cache updated in place, the last but
        one."""
        shape = self._signature.input_shapes[number]
        if in_place:
            return len(shape) - 2
        open_axes = [axis for axis, extent in enumerate(shape) if isinstance(extent, Named)]
        return open_axes[-1] if len(open_axes) > 1 or (open_axes and len(shape) > 3) else None


def _copied(value: Any) -> np.ndarray:
    """A copy with the alignment required by a run, which then does not copy it again."""
    given = np.asarray(value)
    copied = np.ndarray(given.shape, given.dtype, buffer=aligned_empty((given.nbytes,), "uint8"))
    copied[...] = given
    return copied
