"""PyTorch's own samples of its operators (OpInfo), compiled and compared with PyTorch run eagerly.

python tests/nets/torch_opinfo.py --names add,nn.functional.relu --dtypes float32,int64 --ways export --seed 0

Prints for each operator, type and way how many samples are

    right          in the results of PyTorch run eagerly
    left           right, with operators that torch.compile left to PyTorch
    traced         not what PyTorch computes eagerly, but what it computes of its own trace
    refused        by a TilingError
    unexportable   PyTorch cannot export or trace it
    wrong, internal error (of another kind), died, too long, too large

and what was said of the smallest one. The exit code is 1 where any is of the last line. It needs what PyTorch's test
suite imports: expecttest.
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
