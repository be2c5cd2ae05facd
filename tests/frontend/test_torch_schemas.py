"""Converters take what their operators' schemas name."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from tvm_tiling.frontend.torch.operators import CONVERTERS  # noqa: E402
from tvm_tiling.frontend.torch.translation import STORAGE  # noqa: E402


def schema_arguments(name):
    """The arguments of an operator of the installed PyTorch, but for those about storage; None where it has it not."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    try:
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        return None
    return [argument.name for argument in found._schema.arguments if argument.name not in STORAGE]


def takes(converter, arguments):
    """Whether a converter takes these arguments by their names, and needs no others."""
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
