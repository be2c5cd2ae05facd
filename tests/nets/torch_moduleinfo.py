"""PyTorch's own samples of its modules (ModuleInfo), compiled and compared with eager PyTorch.

python tests/nets/torch_moduleinfo.py                                                   all of them
python tests/nets/torch_moduleinfo.py --names nn.GRU --dtypes float32 --ways export --only 3    one sample

Each sample is a module in eval() with an input. It is compiled by torch.export and by torch.compile. The output
is like that of torch_opinfo.py.
"""

from __future__ import annotations

import sys

from torch_sample_net import WAYS, command


def known_modules() -> list[str]:
    """Return the names of all modules of ModuleInfo."""
    from moduleinfo_samples import modules

    return list(modules())


if __name__ == "__main__":
    sys.exit(command("moduleinfo", __doc__, known_modules, ("float32", "float64", "float16", "bfloat16"), WAYS))
