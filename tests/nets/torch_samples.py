"""A sample: a PyTorch operator or module with arguments, of which only the tensors are inputs."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree


class Results(NamedTuple):
    """The tensors that a sample, or several in sequence, return, and their inputs afterwards."""

    returned: list[torch.Tensor]
    inputs: list[torch.Tensor]


@dataclass(frozen=True)
class Sample:
    """A function, or a module in eval(), with the arguments of one sample; `tensors`: those of them that are tensors.
    `name`: of the operator or module in PyTorch's list. `number`: its index among the samples of its name and type."""

    function: Any
    leaves: tuple[Any, ...]
    structure: Any
    tensors: tuple[torch.Tensor, ...]
    text: str
    name: str = ""
    number: int = 0

    @property
    def elements(self) -> int:
        """Number of elements of the tensors and of a module's parameters: the size of the sample."""
        return sum(tensor.numel() for tensor in (*self.tensors, *_parameters(self.function)))

    def bound(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and keyword arguments, with these tensors instead of the sample's own."""
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return args, kwargs

    def call(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors that the function returns for these instead of the sample's own."""
        args, kwargs = self.bound(tensors)
        return returned_tensors(self.function(*args, **kwargs))

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the arguments by name; `names`: those of positional arguments."""
        args, kwargs = pytree.tree_unflatten(list(self.leaves), self.structure)
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def expected(self) -> Results | None:
        """Return PyTorch's result without a compiler; None if it refuses the sample itself, returns no tensor, or takes
        or returns sparse ones."""
        seeded(0)
        given = [tensor.clone() for tensor in self.tensors]
        try:
            with torch.no_grad():
                returned = self.call(given)
        except Exception:
            return None
        if any(tensor.layout is not torch.strided for tensor in (*self.tensors, *returned)):
            return None
        if not returned:
            return None
        return Results([tensor.detach().clone().contiguous() for tensor in returned], real_parts(given))

    def in_float64(self, like: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Return PyTorch's result for the same numbers in float64, in the types of `like`; None if it refuses them."""
        wide = [tensor.double() if tensor.is_floating_point() else tensor.clone() for tensor in self.tensors]
        seeded(0)
        try:
            module = isinstance(self.function, torch.nn.Module)
            function = copy.deepcopy(self.function).double() if module else self.function
            with torch.no_grad():
                returned = replace(self, function=function).call(wide)
        except Exception:
            return None
        if len(returned) != len(like):
            return None
        return [value.to(known.dtype).contiguous() for value, known in zip(returned, like, strict=True)]


def sample_of(function: Any, args: Sequence[Any], kwargs: dict[str, Any], text: str) -> Sample:
    """Return a sample of a function with these arguments; their description is appended to `text`."""
    leaves, structure = pytree.tree_flatten((tuple(args), kwargs))
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    return Sample(function, tuple(leaves), structure, tensors, f"{text}{described(tuple(args))} {described(kwargs)}")


def described(arguments: Any) -> str:
    """Return arguments with types and shapes instead of tensors."""

    def short(value: Any) -> Any:
        return f"{str(value.dtype)[6:]}{list(value.shape)}" if isinstance(value, torch.Tensor) else value

    return str(pytree.tree_map(short, arguments))


def chosen(name: str, found: Sequence[Sample], limit: int | None) -> list[Sample]:
    """Return at most `limit` samples of this name, spread over all, with their indices among these; all of them without
    a limit."""
    if limit is not None and len(found) > limit:
        found = [found[place * len(found) // limit] for place in range(limit)]
    return [replace(sample, name=name, number=number) for number, sample in enumerate(found)]


def seeded(seed: int) -> None:
    """Seed all random number generators."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def returned_tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested result, in PyTorch's order, with complex numbers as their parts: no compiled
    program returns complex numbers."""
    return real_parts([leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)])


def real_parts(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, complex ones as their parts."""
    return [torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor for tensor in tensors]


def _parameters(function: Any) -> Sequence[torch.Tensor]:
    return list(function.parameters()) if isinstance(function, torch.nn.Module) else []


class Exported(torch.nn.Module):
    """Several samples in one module that takes their tensors, and whose outputs are concatenated."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples
        self.inner = torch.nn.ModuleList(s.function for s in samples if isinstance(s.function, torch.nn.Module))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: list[torch.Tensor] = []
        first = 0
        for sample in self.samples:
            outputs += sample.call(tensors[first : first + len(sample.tensors)])
            first += len(sample.tensors)
        return tuple(outputs)


class Several(torch.nn.Module):
    """Several samples in one module that takes the arguments of each and returns the results of each."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.functions = [sample.function for sample in samples]

    def forward(self, *arguments: Any) -> list[Any]:
        return [function(*args, **kwargs) for function, (args, kwargs) in zip(self.functions, arguments, strict=True)]


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as NumPy array; bfloat16 as in ml_dtypes."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """Return the reverse of as_array."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
