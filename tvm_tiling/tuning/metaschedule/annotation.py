"""A configuration as annotations of a schedule, choice by choice, so that MetaSchedule traces can sample, mutate and
store it. The root block of the function carries

    tvm_tiling.space           the choices of every algorithm with their values, as JSON, to decode picks without it
    tvm_tiling.pick.<choice>   the index of the sampled value

so a trace has the same meaning in another process, and after the neighbourhood of a decision has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tvm import s_tir, tirx

from ...decide.configs.neighbourhood import FORM, Space
from ...decide.configs.record import Config, Value
from ...errors import DatabaseError
from .rejoined import rejoined

SPACE = "tvm_tiling.space"
PICK = "tvm_tiling.pick."


def described(space: Space) -> str:
    """Return the choices of a space as text."""
    best = {config.form: config for config in reversed(list(space.configs()))}
    forms = {form: sorted(set(space.choices(best[str(form)])) - {FORM}) for form in space.options[FORM]}
    options = {name: [_plain(value) for value in values] for name, values in space.options.items()}
    return json.dumps({"op": space.start.op, "forms": forms, "options": options})


def root_annotations(func: tirx.PrimFunc) -> Mapping[str, Any]:
    """Return the annotations of the root block, or none if the body is not a block."""
    body = func.body
    return body.block.annotations if isinstance(body, s_tir.SBlockRealize) else {}


def picked(annotations: Mapping[str, Any]) -> tuple[Config, dict[str, Value]] | None:
    """Return the configuration that annotations describe, and its choices by name in the space; None without
    annotations.

    DatabaseError if they are inconsistent with `described` and the rule.
    """
    if SPACE not in annotations:
        return None
    try:
        space = json.loads(str(annotations[SPACE]))
        options, form = space["options"], _value(space, annotations, FORM)
        chosen = {name: _value(space, annotations, name) for name in space["forms"][form]}
        own = {name.split(".", 1)[-1]: value for name, value in chosen.items() if name in options}
        return Config.of(space["op"], str(form), own), {FORM: form, **chosen}
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DatabaseError(f"the annotation {SPACE} does not match its picks: {error!r}") from None


def _value(space: Mapping[str, Any], annotations: Mapping[str, Any], name: str) -> Value:
    values = space["options"][name]
    place = int(annotations[PICK + name]) if PICK + name in annotations else 0
    if not 0 <= place < len(values):
        raise IndexError(f"{name} = {place} of {len(values)} values")
    value = values[place]
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def plain(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function without configuration annotations, with its reductions rejoined."""
    schedule = s_tir.Schedule(rejoined(func))
    root = schedule.get_sblock("root")
    for name in root_annotations(func):
        if str(name) == SPACE or str(name).startswith(PICK):
            schedule.unannotate(root, str(name))
    return schedule.mod["main"]
