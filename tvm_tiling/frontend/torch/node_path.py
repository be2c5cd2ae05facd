"""What a node of a program is called in reports: the path of the module that it belongs to, as a user wrote it."""

from __future__ import annotations

import re

import torch

# How tracers write the model itself: "L['self'].layer1" and "L__self___layer1.0" are layer1.
_SELF = re.compile(r"^(?:L\['\w+'\]|L__\w+?___|self|_orig_mod)(?:\.|$)?")
_KEPT = "tvm_tiling.node_path"  # in what tracers keep of a node for its users
_ITEM = re.compile(r"\[['\"]?(\w+)['\"]?\]")


def node_path(node: torch.fx.Node) -> str:
    """The path of a node's module, as layer1.0.conv1, where that is one of PyTorch's; else the node's own name, behind
    the path of the module whose code computes it, as layer1.0/add."""
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
    """Call `node`, and what it becomes when it is exported, as `source` is called in reports; releases of PyTorch whose
    tracers keep nothing for users call it by its own name."""
    node.meta["custom"] = {_KEPT: node_path(source)}


def _is_of_torch(kind: object) -> bool:
    """Whether a module's class is PyTorch's own, which a record has as the class or as its name."""
    where = kind if isinstance(kind, str) else getattr(kind, "__module__", "")
    return where.startswith("torch.nn.")
