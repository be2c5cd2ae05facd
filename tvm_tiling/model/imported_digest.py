"""A digest of imported models: of the graph, and of the content of its constants."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, tirx

from ..frontend import ImportedModel
from ..frontend.node_names import names_in
from .passes.dataflow import array


def imported_digest(models: Sequence[ImportedModel]) -> bytes:
    """The digest of the variants of a model: it changes with anything that they compute, and with names used in
    reports."""
    digest = hashlib.sha256()
    for imported in models:
        nodes = list(names_in(imported.module))
        digest.update(json.dumps([imported.input_names, imported.output_names, nodes]).encode())
        for variable, func in sorted(imported.module.functions.items(), key=lambda item: item[0].name_hint):
            digest.update(variable.name_hint.encode())
            _hash_function(digest, func)
    return digest.digest()


def _hash_function(digest: hashlib._Hash, func: relax.Function | tirx.PrimFunc) -> None:
    """Hash the structure of a function, and the constants of a Relax function."""
    digest.update(func.script(show_meta=False).encode())
    if not isinstance(func, relax.Function):
        return

    def constant(expr: object) -> None:
        if isinstance(expr, tvm.ir.GenericConst) and isinstance(expr.value, tvm.runtime.Tensor):
            value = np.asarray(array(expr))
            digest.update(f"{value.dtype}{value.shape}".encode())
            digest.update(value.reshape(-1).view(np.uint8).data)

    relax.analysis.post_order_visit(func, constant)
