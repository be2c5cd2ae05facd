"""Sample inputs of PyTorch's OpInfo."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch_samples import Sample, chosen, sample_of, seeded


@cache
def operators() -> dict[str, Any]:
    """Return OpInfo's entries by name, as in nn.functional.relu; for variants, name.variant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {info.name + (f".{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db}


def samples(name: str, dtype: str, seed: int, limit: int | None) -> list[Sample]:
    """Return the samples of an operator for a type, at most `limit`, spread over all; none if it does not support the
    type."""
    info, kind = operators()[name], getattr(torch, dtype)
    if kind not in info.supported_dtypes("cpu"):
        return []
    seeded(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            sample_of(info.op, (sample.input, *sample.args), sample.kwargs, "")
            for sample in info.sample_inputs("cpu", kind, requires_grad=False)
        ]
    return chosen(name, found, limit)
