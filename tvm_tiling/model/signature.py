"""Inputs and outputs of a compiled model, and checks of given arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import WorkloadError, nearest
from ..runtime.arrays import as_array
from ..sizes import OpenSizes, Shape, evaluated, from_plain, leading_of, to_plain

if TYPE_CHECKING:
    from ..frontend import ImportedModel


@dataclass(frozen=True, kw_only=True)
class Signature:
    """Inputs and outputs of a model: names in graph order, shapes in elements, TVM's names of types.

    `open_sizes`: the dynamic dimensions in the shapes of the inputs, and their constraints. `output_shapes` and
    `output_dtypes` are empty for a file of an earlier version; a data-dependent shape is None. `end_tokens`:
    end-of-text tokens, if a language model defines them.
    """

    input_names: tuple[str, ...]
    input_shapes: tuple[Shape, ...]
    input_dtypes: tuple[str, ...]
    output_names: tuple[str, ...]
    output_shapes: tuple[tuple[int, ...] | None, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    open_sizes: OpenSizes = field(default_factory=OpenSizes)
    end_tokens: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether inputs have dynamic shapes."""
        return bool(self.open_sizes)

    def sizes(self, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        """The dynamic dimensions of these inputs. Raises WorkloadError with the shape that does not match."""
        return self.open_sizes.bound(self.input_shapes, [array.shape for array in arrays], self.input_names)

    @property
    def sample(self) -> dict[str, int]:
        """Values of dynamic dimensions for which decisions are made and times are predicted, by name."""
        return self.open_sizes.usual(leading_of(self.input_shapes))

    @property
    def example_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Example shapes of inputs: dynamic dimensions have the values of OpenSizes.usual()."""
        sizes = self.sample
        return tuple(tuple(evaluated(extent, sizes) for extent in shape) for shape in self.input_shapes)

    @classmethod
    def of(cls, imported: ImportedModel) -> Signature:
        """The signature of a model as returned by a frontend."""
        outputs = imported.outputs
        return cls(
            input_names=imported.input_names,
            input_shapes=imported.input_shapes,
            input_dtypes=imported.input_dtypes,
            output_names=imported.output_names,
            output_shapes=tuple(shape for shape, _ in outputs),
            output_dtypes=tuple(dtype for _, dtype in outputs),
            open_sizes=imported.open_sizes,
            end_tokens=imported.end_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse of from_dict()."""
        plain: dict[str, Any] = {
            "input_names": list(self.input_names),
            "input_shapes": [list(map(to_plain, shape)) for shape in self.input_shapes],
            "input_dtypes": list(self.input_dtypes),
            "output_names": list(self.output_names),
            "output_shapes": [None if shape is None else list(shape) for shape in self.output_shapes],
            "output_dtypes": list(self.output_dtypes),
        }
        if self.is_open:
            plain["open_sizes"] = self.open_sizes.to_dict()
        if self.end_tokens:
            plain["end_tokens"] = list(self.end_tokens)
        return plain

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Signature:
        """The signature for the result of to_dict() after a JSON round trip."""
        return cls(
            input_names=tuple(plain["input_names"]),
            input_shapes=tuple(tuple(map(from_plain, shape)) for shape in plain["input_shapes"]),
            input_dtypes=tuple(plain["input_dtypes"]),
            output_names=tuple(plain["output_names"]),
            output_shapes=tuple(
                None if shape is None else tuple(int(size) for size in shape)
                for shape in plain.get("output_shapes", ())
            ),
            output_dtypes=tuple(map(str, plain.get("output_dtypes", ()))),
            open_sizes=OpenSizes.from_dict(plain.get("open_sizes", {})),
            end_tokens=tuple(map(int, plain.get("end_tokens", ()))),
        )

    def names_of(self, outputs: int) -> tuple[str, ...]:
        """Names of this number of outputs: the model's, or generated ones if it names another number."""
        return self.output_names if len(self.output_names) == outputs else tuple(f"output_{n}" for n in range(outputs))

    def lines(self) -> list[str]:
        """One line for each input, and one for the outputs."""
        inputs = [
            f"input {name}: {' x '.join(map(str, shape)) or 'scalar'} {dtype}"
            for name, shape, dtype in zip(self.input_names, self.input_shapes, self.input_dtypes, strict=True)
        ]
        sizes = [f"{size.name}: {size.least} to {size.most}" for size in self.open_sizes.sizes]
        return [*inputs, *sizes, f"outputs: {', '.join(self.output_names)}"]

    def arrays(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[np.ndarray]:
        """Inputs in order, by name or in one mapping by name, as arrays in graph order; types are checked, shapes are
        not.

        A dict, list or tuple by name contains the inputs whose names start with its own, as in state.key.0. Raises
        WorkloadError with the input that is missing, unknown, given twice or of another type.
        """
        given, named = by_name(given, named)
        if len(given) > len(self.input_names):
            raise WorkloadError(
                f"the number of inputs is {len(given)}; expected at most {len(self.input_names)}: "
                f"{_list(self.input_names)}"
            )
        values = dict(zip(self.input_names, given, strict=False))
        for name, value in _leaves(named, self.input_names):
            known = name if name in self.input_names else _as_keyword(name, self.input_names)
            if known is None:
                raise WorkloadError(f"the model has no input {name!r}; {nearest(name, self.input_names)}")
            if known in values:
                raise WorkloadError(f"input {known!r} is given twice; expected once")
            values[known] = value
        if missing := [name for name in self.input_names if name not in values]:
            raise WorkloadError(f"input {missing[0]!r} is missing; the model takes {_list(self.input_names)}")
        checked = []
        for name, dtype in zip(self.input_names, self.input_dtypes, strict=True):
            value = as_array(values[name], f"input {name!r}")
            if str(value.dtype) != dtype:
                raise WorkloadError(f"input {name!r} is {value.dtype}, but the model takes {dtype}")
            checked.append(value)
        return checked


def in_order(names: Sequence[str], given: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any] | None:
    """The inputs of a call in the order of `names` if all are given in one way and by these names; None otherwise."""
    if len(given) == 1 and not named and type(given[0]) is dict:
        named, given = given[0], ()
    if not named:
        return given
    if given or len(named) != len(names):
        return None
    found = [named[name] for name in names if name in named]
    return found if len(found) == len(names) else None


def by_name(given: Sequence[Any], named: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The positional and named inputs of a call; a mapping as the only positional argument contains inputs by name.

    Raises WorkloadError if a name is given twice or is not a string.
    """
    if len(given) != 1 or not isinstance(given[0], Mapping):
        return given, named
    for name in given[0]:
        if not isinstance(name, str):
            raise WorkloadError(f"inputs by name: {name!r} is not a name; expected a string")
        if name in named:
            raise WorkloadError(f"input {name!r} is given twice; expected once")
    return (), {**given[0], **named}


def chosen(signatures: Sequence[Signature], arrays: Sequence[np.ndarray]) -> int:
    """The number of the signature whose shapes the arrays have. Raises WorkloadError with the input that has another
    shape."""
    shapes = tuple(array.shape for array in arrays)
    for number, signature in enumerate(signatures):
        if signature.input_shapes == shapes:
            return number
    refused: WorkloadError | None = None
    for number, signature in enumerate(signatures):
        if signature.is_open:
            try:
                signature.sizes(arrays)
            except WorkloadError as error:
                refused = refused or error
            else:
                return number
    if refused is not None:
        raise refused
    place = next(
        (i for i, shape in enumerate(shapes) if all(s.input_shapes[i] != shape for s in signatures)),
        None,
    )
    if place is None:
        sets = "; ".join(", ".join(map(str, s.input_shapes)) for s in signatures)
        raise WorkloadError(
            f"the inputs have the combination of shapes {', '.join(map(str, shapes))}, but the model was "
            f"compiled for {sets}"
        )
    accepted = " or ".join(map(str, dict.fromkeys(s.input_shapes[place] for s in signatures)))
    name = signatures[0].input_names[place]
    raise WorkloadError(f"input {name!r} has shape {shapes[place]}, but the model was compiled for {accepted}")


def _leaves(named: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The values given by name, with the content of containers named by its position; None in them is skipped."""
    for name, value in named.items():
        parts: Mapping[Any, Any] | None = None
        if name not in known and any(other.startswith(f"{name}.") for other in known):
            if isinstance(value, Mapping):
                parts = value
            elif isinstance(value, list | tuple):
                parts = dict(enumerate(value))
        if parts is None:
            yield name, value
        else:
            inner = {f"{name}.{key}": part for key, part in parts.items() if part is not None}
            yield from _leaves(inner, known)


def _as_keyword(name: str, names: Sequence[str]) -> str | None:
    """The one input that `name` refers to if its own name is not a Python identifier."""
    found = [n for n in names if "".join(c if c.isalnum() else "_" for c in n) == name]
    return found[0] if len(found) == 1 else None


def _list(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
