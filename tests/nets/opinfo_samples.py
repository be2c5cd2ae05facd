"""Sample inputs of PyTorch's OpInfo as modules that take the tensors of a sample and nothing else."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.utils import _pytree as pytree

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")


@cache
def operators() -> dict[str, Any]:
    """OpInfo's entries by name, as in nn.functional.relu; of variants, name.variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {info.name + (f".{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db}


@dataclass(frozen=True)
class Sample:
    """An operator with the arguments of one sample; `tensors`: those of them that are tensors."""

    function: Any
    leaves: tuple[Any, ...]
    structure: Any
    tensors: tuple[torch.Tensor, ...]
    text: str

    def call(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the operator returns for these in the place of the sample's own."""
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        returned = pytree.tree_leaves(self.function(*args, **kwargs))
        return [_parts(value) for value in returned if isinstance(value, torch.Tensor)]

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments by name; `names`: those of arguments by position."""
        args, kwargs = pytree.tree_unflatten(list(self.leaves), self.structure)
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def expected(self) -> list[torch.Tensor] | None:
        """What PyTorch returns without a compiler; None where it refuses the sample itself, returns no tensor, or
        takes or returns sparse ones."""
        try:
            with torch.no_grad():
                returned = self.call([tensor.clone() for tensor in self.tensors])
        except Exception:
            return None
        if any(tensor.layout is not torch.strided for tensor in (*self.tensors, *returned)):
            return None
        return [tensor.detach().clone().contiguous() for tensor in returned] or None

    def in_float64(self, like: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """What PyTorch returns for the same numbers in float64, in the types of `like`; None where it refuses them."""
        wide = [tensor.double() if tensor.is_floating_point() else tensor.clone() for tensor in self.tensors]
        try:
            with torch.no_grad():
                returned = self.call(wide)
        except Exception:
            return None
        if len(returned) != len(like):
            return None
        return [value.to(known.dtype).contiguous() for value, known in zip(returned, like, strict=True)]


def _parts(value: torch.Tensor) -> torch.Tensor:
    """A tensor of complex numbers as one of their parts: no compiled program returns complex numbers."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


class Batch(torch.nn.Module):
    """Several samples in one module, whose outputs stand one behind the other."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.samples = samples

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: list[torch.Tensor] = []
        first = 0
        for sample in self.samples:
            outputs += sample.call(tensors[first : first + len(sample.tensors)])
            first += len(sample.tensors)
        return tuple(outputs)


def samples(name: str, dtype: str, seed: int, limit: int) -> list[Sample]:
    """The samples of an operator for a type, at most `limit`, spread over all; none where it does not take the type."""
    info, kind = operators()[name], getattr(torch, dtype)
    if kind not in info.supported_dtypes("cpu"):
        return []
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(_samples(info, kind))
    if len(found) > limit:
        found = [found[place * len(found) // limit] for place in range(limit)]
    return found


def _samples(info: Any, kind: torch.dtype) -> Iterator[Sample]:
    for sample in info.sample_inputs("cpu", kind, requires_grad=False):
        leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        yield Sample(info.op, tuple(leaves), structure, tensors, _text(sample))


def _text(sample: Any) -> str:
    def short(value: Any) -> Any:
        return f"{str(value.dtype)[6:]}{list(value.shape)}" if isinstance(value, torch.Tensor) else value

    args = pytree.tree_map(short, (sample.input, *sample.args))
    return f"{args} {pytree.tree_map(short, sample.kwargs)}"


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as NumPy's array; bfloat16 as ml_dtypes has it."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """The reverse of as_array."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)
