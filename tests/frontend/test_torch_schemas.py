"""Converters take the arguments that their operators' schemas name."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from tvm_tiling.frontend.torch.operators import CONVERTERS  # noqa: E402
from tvm_tiling.frontend.torch.translation import STORAGE  # noqa: E402


def schema_arguments(name):
    """Return the arguments of an operator of the installed PyTorch, except those about storage; None if it is
    missing."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        return None
    return [argument.name for argument in found._schema.arguments if argument.name not in STORAGE]


def takes(converter, arguments):
    """Return whether a converter accepts these arguments by name, and requires no others."""
    try:
        inspect.signature(converter).bind(None, **dict.fromkeys(arguments))
    except TypeError:
        return False
    return True


def test_converters_take_all_arguments_of_their_schemas():
    known = {name: schema_arguments(name) for name in CONVERTERS}
    wrong = {
        name: (wanted, str(inspect.signature(CONVERTERS[name])))
        for name, wanted in known.items()
        if wanted is not None and not takes(CONVERTERS[name], wanted)
    }
    assert not wrong
    missing = [name for name, wanted in known.items() if wanted is None]
    assert len(missing) < len(CONVERTERS) / 10, f"names that this PyTorch does not have: {missing}"
