"""What importing the package loads, and that TVM can be loaded without PyTorch without affecting models of PyTorch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from textwrap import dedent

import pytest


def run(code):
    """Run a script in a fresh process; a failure reports its output."""
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_package_loads_nothing_before_a_name_is_used():
    run("""
        import sys
        import tvm_tiling as tt
        assert not {"numpy", "tvm", "tvm_ffi", "torch", "sqlalchemy"} & set(sys.modules)
        assert not [name for name in sys.modules if name.startswith(("tvm_tiling.decide.", "tvm_tiling.hardware"))]
        assert {"decide", "compile", "GemmWorkload"} <= set(dir(tt))
        tt.decide(tt.GemmWorkload(m=8, n=8, k=8), tt.Hardware.load("neartile"))
        assert "tvm" not in sys.modules
    """)


@pytest.mark.parametrize("first", ["tvm_tiling.decide.decide", "tvm_tiling.decide.gemm.choice", "tvm_tiling.schedule"])
def test_decide_is_the_function_whatever_is_imported_before(first):
    run(f"""
        import {first}
        import tvm_tiling as tt
        from tvm_tiling import decide
        from tvm_tiling.decide.options import Options
        assert callable(decide) and decide is tt.decide and Options
    """)


def test_every_public_name_is_there_and_the_same_each_time():
    run("""
        import tvm_tiling as tt
        assert all(getattr(tt, name) is getattr(tt, name) for name in tt.__all__)
    """)


def test_tvm_is_imported_without_what_it_does_not_need():
    run("""
        import sys
        import tvm_tiling as tt
        tt.tiling_schedule
        assert "tvm" in sys.modules and "torch" not in sys.modules and "xgboost" not in sys.modules
        assert "tvm.runtime.disco.session" not in sys.modules
        import tvm
        assert tvm.runtime.disco.ThreadedSession.__name__ == "ThreadedSession"  # it comes when it is asked for
    """)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_pytorch_is_supported_whenever_it_is_imported():
    pytest.importorskip("torch")
    run("""
        import sys
        import tvm_tiling as tt
        compile = tt.compile
        assert "torch" not in sys.modules
        import torch, tvm_ffi
        x = torch.randn(2, 3)
        assert tuple(tvm_ffi.from_dlpack(x).shape) == (2, 3)
        net = torch.nn.Linear(3, 4)
        y = compile(net, example_inputs=(x,), cache=False).run(x)
        torch.testing.assert_close(torch.from_numpy(y), net(x).detach())
        torch.testing.assert_close(torch.compile(net, backend="tvm_tiling")(x), net(x))
    """)
    run("""
        import torch
        import tvm_tiling as tt
        tt.compile
        import tvm_ffi._convert
        assert tvm_ffi._convert.torch is torch
    """)
