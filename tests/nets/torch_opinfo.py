"""PyTorch's own samples of its operators (OpInfo), compiled and compared with eager PyTorch.

python tests/nets/torch_opinfo.py --names add,nn.functional.relu --dtypes float32,int64 --ways export --seed 0

Prints for each operator, type and way the number of samples by outcome:

    right          equal to eager PyTorch
    left           right, with operators that torch.compile left to PyTorch
    traced         equal to PyTorch's own trace, but not to eager PyTorch
    refused        with a TilingError
    unexportable   PyTorch cannot export or trace it
    wrong, internal error (of another kind), died, too long, too large

and the message of the smallest sample of each. The exit code is 1 if any sample has an outcome of the last line.
Requires expecttest, which PyTorch's test suite imports.
"""

from __future__ import annotations

import sys

from torch_sample_net import WAYS, command


def known_operators() -> list[str]:
    """Return the names of all operators of OpInfo."""
    from opinfo_samples import operators

    return list(operators())


if __name__ == "__main__":
    sys.exit(
        command(
            "opinfo",
            __doc__,
            known_operators,
            ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"),
            WAYS,
        )
    )
