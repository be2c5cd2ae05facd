"""Sample modules and inputs of PyTorch's ModuleInfo, in eval()."""

from __future__ import annotations

import contextlib
import warnings
from functools import cache
from typing import Any

import torch
from torch_samples import Sample, chosen, described, sample_of, seeded


@cache
def modules() -> dict[str, Any]:
    """Return ModuleInfo's entries by name, as in nn.Linear."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    return {info.name: info for info in module_db}


def a_tenth() -> list[str]:
    """Return every tenth module, always the same ones."""
    return list(modules())[::10]


def samples(name: str, dtype: str, seed: int, limit: int | None) -> list[Sample]:
    """Return the samples of a module for a type, at most `limit`, spread over all.

    ModuleInfo declares most modules for float32 and float64 only; samples of other types are used where it creates
    them. The parameters of a sample depend on the seed and the sample alone.
    """
    info, kind = modules()[name], getattr(torch, dtype)
    seeded(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = list(info.module_inputs_func(info, "cpu", kind, requires_grad=False, training=False))
        except Exception:
            if kind in info.supported_dtypes("cpu"):
                raise
            return []
        found = [_sample(info, each, kind, seed) for each in given if each.forward_input is not None]
    return chosen(name, found, limit)


def _sample(info: Any, given: Any, kind: torch.dtype, seed: int) -> Sample:
    made, taken = given.constructor_input, given.forward_input
    seeded(seed)
    module = info.module_cls(*made.args, **made.kwargs).to(kind).eval()
    if info.is_lazy:
        with torch.no_grad(), contextlib.suppress(Exception):  # refused samples have no expected result either
            module(*taken.args, **taken.kwargs)
    text = f"{info.name}{described(made.args)} {described(made.kwargs)} of "
    return sample_of(module, taken.args, taken.kwargs, text)
