"""Networks exported from PyTorch give PyTorch's results, at small and awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import te, tirx, topi
from tvm.ir import Call

import tvm_tiling as tt

torch = pytest.importorskip("torch")
networks = pytest.importorskip("benchmarks.torch_networks")

SMALL = {
    "encoder": lambda: networks.tokens(32, 4, 1, 17, 3),
    "encoder, vectors of tokens": lambda: networks.tokens(48, 2, 2, 32, 0),
    "encoder, one token": lambda: networks.tokens(16, 1, 1, 1, 0),
    "vision transformer": lambda: networks.on_image(lambda: networks.VisionTransformer(35, 7, 36, 3, 2, 10), 35, 35),
    "unet": lambda: networks.on_image(lambda: networks.UNet(4, 2, False), 24, 20),
    "unet, bilinear": lambda: networks.on_image(lambda: networks.UNet(4, 2, True), 16, 28),
    "detector": lambda: networks.on_image(lambda: networks.Detector(4, 7), 72, 57),
}


@pytest.mark.parametrize("name", SMALL)
def test_compiled_networks_compute_what_pytorch_computes(name):
    network = networks.seeded(SMALL[name])
    with torch.no_grad():
        wanted = network.module(*network.inputs)
    executable = tt.compile(torch.export.export(network.module, network.inputs), cache=False)
    outputs = executable.run(*(tensor.numpy() for tensor in network.inputs))
    pairs = zip(
        outputs if isinstance(outputs, tuple) else (outputs,),
        wanted if isinstance(wanted, tuple) else (wanted,),
        strict=True,
    )
    for output, value in pairs:
        np.testing.assert_allclose(output, value.numpy(), rtol=2e-4, atol=2e-5)
    kinds = {operator.kind for operator in executable.operators}
    assert ("attention" in kinds) == (name in ("encoder", "encoder, vectors of tokens", "vision transformer"))


def test_functions_after_a_gemm_are_written_out():
    a, b = te.placeholder((7, 30), name="A"), te.placeholder((30, 45), name="B")
    r = te.reduce_axis((0, 30), name="k")
    product = te.compute((7, 45), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    erf = topi.erf(product)
    gelu = te.compute((7, 45), lambda i, j: product[i, j] * tirx.sigmoid(product[i, j]) + erf[i, j], name="G")
    main = tt.tiling_schedule(te.create_prim_func([a, b, gelu])).mod["main"]
    called: set[str] = set()
    tvm_ffi.structural_walk(main.body, (Call, lambda call: called.add(getattr(call.op, "name", ""))))
    assert not {"tirx.erf", "tirx.sigmoid", "tirx.exp"} & called
