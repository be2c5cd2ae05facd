"""Import of PyTorch programs and modules."""

import torch

from ...errors import ModelFormatError

# Earlier releases cannot keep an operator undecomposed, and their decomposition of LSTM has states of a wrong shape.
if not hasattr(torch.export, "default_decompositions"):
    raise ModelFormatError(f"PyTorch {torch.__version__} is installed; expected 2.6 or newer: pip install 'torch>=2.6'")
