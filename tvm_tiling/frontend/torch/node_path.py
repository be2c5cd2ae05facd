"""Names of a program's nodes in reports: the path of the module to which a node belongs, as written by the user."""

from __future__ import annotations

import re

import torch

# Prefixes that tracers give the model itself: "L['self'].layer1" and "L__self___layer1.0" are layer1.
_SELF = re.compile(r"^(?:L\['\w+'\]|L__\w+?___|self|_orig_mod)(?:\.|$)?")
_KEPT = "tvm_tiling.node_path"  # key in the metadata that tracers keep for users
_ITEM = re.compile(r"\[['\"]?(\w+)['\"]?\]")


def node_path(node: torch.fx.Node) -> str:
    """The path of a node's module, such as layer1.0.conv1, if that is a PyTorch module; otherwise the node's own name
    after the path of the module that computes it, such as layer1.0/add."""
    custom = node.meta.get("custom")
    if isinstance(custom, dict) and isinstance(custom.get(_KEPT), str):
        return str(custom[_KEPT])
    own = str(node.name).lstrip("_")
    stack = node.meta.get("nn_module_stack") or {}
    found = list(stack.values())[-1] if stack else None
    if not isinstance(found, tuple) or len(found) < 2 or not isinstance(found[0], str):
        return own
    path = _ITEM.sub(r".\1", _SELF.sub("", found[0])).strip(".")
    if path and _is_of_torch(found[1]):
        return path
    return f"{path}/{own}" if path else own


def keep_path(node: torch.fx.Node, source: torch.fx.Node) -> None:
    """Give `node`, and the nodes exported from it, the name of `source` in reports; with PyTorch releases whose tracers
    keep no user metadata, it keeps its own name."""
    node.meta["custom"] = {_KEPT: node_path(source)}


def _is_of_torch(kind: object) -> bool:
    """Return whether a module's class is PyTorch's own; the metadata has the class or its name."""
    where = kind if isinstance(kind, str) else getattr(kind, "__module__", "")
    return where.startswith("torch.nn.")
