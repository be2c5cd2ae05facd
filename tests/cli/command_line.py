"""One call of tvm-tiling in this process."""

from __future__ import annotations

import pytest

from tvm_tiling.cli import app


def run(capsys, *words) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as left:
        app.main([str(word) for word in words])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out, said.err
