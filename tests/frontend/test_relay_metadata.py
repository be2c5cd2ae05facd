"""Attributes in the metadata of Relay's text form, as a whole or individually: as in JSON."""

from __future__ import annotations

import numpy as np
import pytest
from relay_cases import outputs, program
from relay_families import FAMILIES
from relay_json import AttributeWriter

from tvm_tiling.errors import ModelFormatError, TilingError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.attributes import OPERATORS, with_defaults
from tvm_tiling.frontend.relay.import_relay import parsed
from tvm_tiling.frontend.relay.nodes import Nodes
from tvm_tiling.frontend.relay.parser import divide_metadata, parse_program
from tvm_tiling.frontend.relay.tree import Call, in_order

X = np.arange(12, dtype="float32").reshape(3, 4)
HEAD = "def @main(%x: Tensor[(3, 4), float32]) {\n"


def with_metadata(writer: AttributeWriter, body: str, **items: list[str]) -> bytes:
    """Return a text whose metadata has `items` by their kinds, with dots written as __."""
    held = [int(writer.array(listed)) for listed in items.values()]
    keys = [kind.replace("__", ".") for kind in items]
    root = writer.put({"type_key": "Map", "keys": keys, "data": held})
    return (HEAD + body + "\n}\n#[metadata]\n").encode() + writer.file(root)


def test_an_attribute_that_refers_to_a_node():
    """cumsum's axis is the number in a node, not the number of that node."""
    for axis in (0, 1):
        writer = AttributeWriter("0.14.0")
        attrs = writer.add("relay.attrs.ScanopAttrs", axis=writer.number(axis), dtype="", exclusive=0)
        text = with_metadata(writer, "cumsum(%x, meta[relay.attrs.ScanopAttrs][0])", relay__attrs__ScanopAttrs=[attrs])
        np.testing.assert_array_equal(outputs(load_model(text).module, [X])[0], X.cumsum(axis))
        writer = AttributeWriter("0.14.0")
        text = with_metadata(writer, "cumsum(%x, axis=meta[IntImm][0])", IntImm=[writer.number(axis)])
        np.testing.assert_array_equal(outputs(load_model(text).module, [X])[0], X.cumsum(axis))


@pytest.mark.parametrize("release", ["0.6.0", "0.14.0"])
def test_every_attribute_of_every_operator(release):
    calls = [
        expr
        for cases in FAMILIES.values()
        for expr in in_order(parse_program(program(cases)[0], lambda *of: None, None).functions["main"].body)
        if isinstance(expr, Call) and isinstance(expr.op, str) and OPERATORS.get(expr.op)
    ]
    writer = AttributeWriter(release)
    items = [writer.attributes(call.op, call.attrs) for call in calls]
    body = ", ".join(f"{call.op}(%x, meta[relay.attrs.Attrs][{number}])" for number, call in enumerate(calls))
    text = with_metadata(writer, f"({body},)", relay__attrs__Attrs=items)
    by_json = Nodes(divide_metadata(text.decode())[1], "metadata")
    assert by_json.release == (0, int(release.split(".")[1]))
    found = read_attributes(text)
    assert len(found) == len(calls)
    for call, attrs in zip(calls, found, strict=True):
        wanted = with_defaults(call.op, call.attrs)
        kinds = OPERATORS[call.op]
        compared = {name: value for name, value in wanted.items() if kinds[name].kind != "x"}
        got = with_defaults(call.op, attrs)
        for name, value in compared.items():
            if kinds[name].default is not None or value is not None:
                assert _plain(got[name]) == _plain(value), f"{call.op}: {name}"


def read_attributes(text: bytes) -> list[dict]:
    """Return the attributes of the calls in the tuple of a text."""
    return [dict(call.attrs) for call in parsed(memoryview(text), "text").functions["main"].body.fields]


def _plain(value):
    """Return a value in which floats that were written as text compare equal."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, int | float) else value


def test_a_node_without_a_value_is_refused():
    writer = AttributeWriter("0.14.0")
    total = writer.add("tir.Add", a=writer.number(0), b=writer.number(1), dtype="int32", span=0)
    attrs = writer.add("relay.attrs.ScanopAttrs", axis=total, dtype="", exclusive=0)
    for body, items in (
        ("cumsum(%x, meta[relay.attrs.ScanopAttrs][0])", {"relay__attrs__ScanopAttrs": [attrs]}),
        ("cumsum(%x, axis=meta[tir.Add][0])", {"tir__Add": [total]}),
        ("transpose(%x, axes=[1, meta[tir.Add][0]])", {"tir__Add": [total]}),
    ):
        with pytest.raises(
            UnsupportedOperator, match=r"the attribute ax[ei]s contains a tir.Add; expected numbers, texts"
        ):
            load_model(with_metadata(writer, body, **items))


def test_attributes_that_the_metadata_lacks():
    writer = AttributeWriter("0.14.0")
    attrs = [writer.add("relay.attrs.ScanopAttrs", axis=writer.number(0), dtype="", exclusive=0)]
    with pytest.raises(ModelFormatError, match=r"meta\[relay.attrs.ScanopAttrs\]\[1\] does not exist"):
        load_model(
            with_metadata(writer, "cumsum(%x, meta[relay.attrs.ScanopAttrs][1])", relay__attrs__ScanopAttrs=attrs)
        )
    with pytest.raises(TilingError):
        load_model(with_metadata(writer, "cumsum(%x, meta[IntImm][0])", IntImm=[writer.number(1)]))
