"""Untrusted files: truncated, changed at random, with false lengths. They always give an error."""

from __future__ import annotations

import base64
import json
import struct
import tracemalloc

import numpy as np
import pytest
from relay_damage import METADATA, PARAMS, VARIED, damages, files, read
from relay_files import B, W, array_bytes, dense_json, params_bytes

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.relay.nodes import Nodes
from tvm_tiling.frontend.relay.params import parse_params, read_params
from tvm_tiling.frontend.relay.parser import divide_metadata, parse_program
from tvm_tiling.limits import Limits


def test_whole_files_can_be_read():
    assert all(read(model, params) for model, params in files().values())


def test_every_prefix_of_a_text_is_refused():
    text = VARIED.rstrip()
    whole = text.index("def @main")  # what precedes it is a complete module
    for length in (*range(whole - 40), *range(whole + 1, len(text))):
        with pytest.raises((ModelFormatError, UnsupportedOperator)):
            parse_program(text[:length], lambda kind, number: np.zeros(()), None)


def test_every_prefix_of_the_metadata_is_refused():
    metadata = divide_metadata(METADATA)[1].rstrip()
    for length in range(len(metadata)):
        with pytest.raises(ModelFormatError):
            Nodes(metadata[:length], "metadata")


def test_every_prefix_of_params_is_refused():
    for length in range(len(PARAMS)):
        with pytest.raises(ModelFormatError, match=r"truncated|names do not fit|counts of arrays"):
            parse_params(memoryview(PARAMS)[:length], "params")


@pytest.mark.parametrize("name", files())
def test_prefixes_of_files_are_refused(name):
    model, params = files()[name]
    # An archive ends with blocks of zeros, which are optional.
    end = len(model.rstrip(b"\0").rstrip())
    for length in range(0, end, max(1, end // 60)):
        assert not read(model[:length], params)


def test_random_corruption():
    survived = sum(read(model, params) for _, model, params in damages(300, seed=0))
    assert 0 < survived < 200


def test_lengths_that_lie_allocate_nothing():
    whole = params_bytes({"w": W})
    places = {"names": 16, "name": 24, "arrays": 33, "size": len(whole) - W.nbytes - 8}
    tracemalloc.start()
    for at in places.values():
        for lie in (1 << 40, (1 << 64) - 1, 1 << 20, 0):
            with pytest.raises(ModelFormatError):
                parse_params(memoryview(whole[:at] + struct.pack("<Q", lie) + whole[at + 8 :]), "params")
    head = len(whole) - W.nbytes - 8 - 16
    for extents in ((1 << 40, 1 << 40), (-1, 3), (1 << 62, 4), (0, 1 << 62)):
        with pytest.raises(ModelFormatError):
            parse_params(memoryview(whole[:head] + struct.pack("<qq", *extents) + whole[head + 16 :]), "params")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_dimensions_that_no_memory_holds():
    for text, said in (
        ("def @main(%x: Tensor[(99999999999), float32]) { nn.relu(%x) }", "a dimension is 99999999999"),
        ('def @main() { zeros(shape=[2147483647, 2147483647], dtype="float32") }', "TiB; expected up to"),
        ('def @main() { arange(0, 2147483647, 1, dtype="int32") }', "numbers = 2147483647; expected up to"),
        ("def @main(%x: Tensor[(2), int32]) { one_hot(%x, 1f, 0f, depth=2147483647, axis=-1) }", "depth = 2147483647"),
        ("def @main(%x: Tensor[(2000000), bool]) { split(%x, indices_or_sections=2000000) }", "sections = 2000000"),
        ("def @main(%x: float32) { expand_dims(%x, axis=0, num_newaxis=2000000) }", "num_newaxis = 2000000"),
        (
            "def @main(%x: Tensor[(1, 3, 100000, 100000), int8]) { vision.multibox_prior(%x) }",
            "boxes = 10000000000; expected up to",
        ),
        (
            "def @main(%x: Tensor[(9999, 99999, 6), float32], %n: Tensor[(9999), int32]) "
            "{ vision.non_max_suppression(%x, %n) }",
            "boxes = 999890001; expected up to",
        ),
        ("def @main(%x: Tensor[(2000000000), int32]) { invert_permutation(%x) }", "places = 2000000000"),
    ):
        with pytest.raises((ModelFormatError, UnsupportedOperator), match=said):
            load_model(text.encode())


def test_nesting_is_limited():
    for text in (
        "def @main(%x: Tensor[(2), float32]) { " + "abs(" * 5000 + "%x" + ")" * 5000 + " }",
        "def @main(%x: " + "(" * 5000 + "float32" + ")" * 5000 + ") { %x }",
        "def @main(%x: Tensor[(2), float32]) { abs(%x, a=" + "[" * 5000 + "]" * 5000 + ") }",
        "def @main(%x: Tensor[(2), float32]) { " + "fn (%y) { " * 5000 + "%x" + "}" * 5000 + " }",
        '{"root": 1, "nodes": ' + "[" * 100000,
    ):
        with pytest.raises(ModelFormatError):
            load_model(text.encode())


def test_functions_that_double_each_other_are_limited():
    lines = ["def @f0(%x: Tensor[(2), float32]) { add(%x, %x) }"]
    lines += [f"def @f{n}(%x: Tensor[(2), float32]) {{ @f{n - 1}(@f{n - 1}(%x)) }}" for n in range(1, 40)]
    lines.append("def @main(%x: Tensor[(2), float32]) { @f39(%x) }")
    with pytest.raises(ModelFormatError, match=r"inlining functions: more than 1099511627776; expected up to 1000,"):
        load_model("\n".join(lines).encode(), limits=Limits(nodes=1000))


def test_json_that_refers_to_what_is_not_there():
    whole = dense_json().decode()
    for before, after, said in (
        (f'"root": {Nodes(whole, "whole").root}', '"root": 9999', "node 9999 does not exist"),
        ('"type_key": "Op"', '"type_key": "What"', "'What' is not a Relay expression"),
        ('"args": "', '"args": "9999', "does not exist"),
    ):
        assert before in whole
        with pytest.raises(ModelFormatError, match=said):
            load_model(whole.replace(before, after, 1).encode(), params=PARAMS)


def test_expressions_that_are_part_of_themselves():
    nodes = Nodes(dense_json().decode(), "whole")
    calls = [number for number, node in enumerate(nodes.nodes) if node["type_key"] == "relay.Call"]
    listed = nodes.nodes[nodes.link(calls[0], "args")]
    listed["data"][0] = calls[-1]
    held = {"root": nodes.root, "nodes": nodes.nodes, "b64ndarrays": [], "attrs": {}}
    with pytest.raises(ModelFormatError, match="contains itself; recursion is not supported"):
        load_model(json.dumps(held).encode(), params=PARAMS)


def test_messages_stay_readable_whatever_is_in_a_file():
    for text in (f"def @main(%x: {'f' * 10**5}) {{ %x }}", f"def @main(%{'x' * 10**5}: float32) {{ %y }}"):
        with pytest.raises(ModelFormatError) as raised:
            load_model(text.encode(), params={"w": W})
        assert len(str(raised.value)) < 4000


def test_arrays_of_json_are_checked_too():
    good = array_bytes(B)
    said = METADATA.replace("P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAAAAAAIgAQAEAAAAAAAAAAAAAD8=", "{}")
    text = "def @main() { nn.relu(meta[relay.Constant][0]) }"
    assert load_model((text + said.replace("{}", base64.b64encode(good).decode())).encode()).input_names == ()
    for bad in (good[:-1], good + b"x", b"", good[:20]):
        with pytest.raises(ModelFormatError):
            load_model((text + said.replace("{}", base64.b64encode(bad).decode())).encode())
    with pytest.raises(ModelFormatError, match="is not valid base64"):
        load_model((text + said.replace("{}", "???")).encode())


def test_parameters_are_not_copied(tmp_path):
    path = tmp_path / "large.params"
    large = np.ones(4 << 20, "float32")
    path.write_bytes(params_bytes({"w": large}))
    tracemalloc.start()
    found = read_params(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert found["w"].base is not None and np.array_equal(found["w"], large)
