"""Randomly corrupted Relay files: bytes changed or removed, duplicated, nodes of JSON rewired; and the originals."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import numpy as np
from relay_files import DENSE, B, W, dense_json, params_bytes, tar_bytes
from relay_json import json_of

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model

PARAMS = params_bytes({"w": W, "b": B})
VARIED = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil, }
def @twice(%v: Tensor[(2, 3, 4, 4), float32], Primitive=1) -> Tensor[(2, 3, 4, 4), float32] {
  add(%v, %v)
}
def @main(%x: Tensor[(2, 3, 4, 4), float32], %net.weight: Tensor[(5, 3, 3, 3), float32]) {
  let %y = nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
  %0 = nn.conv2d(%y, %net.weight, strides=[2, 2], padding=[0, 1, 0, 1], channels=5, kernel_size=[3, 3]);
  %1 = @twice(%x) /* ty=Tensor[(2, 3, 4, 4), float32] */;
  %2 = (%0, strided_slice(%1, begin=[0, 0], end=[2, 3], strides=[1, 1], axes=None));
  %3 = fn (%t: (Tensor[(?), float32], Tensor[(?), float32])) { %t.1 };
  %4 = if (less(1f, 2f)) { %3(%2) } else { nn.relu(%2.1) };
  %5 = split(%4, indices_or_sections=3, axis=1);
  qnn.quantize(%5.0, meta[relay.Constant][0], 3 /* ty=int32 */, out_dtype="int8")
}
"""
METADATA = """
#[metadata]
{"root": 1, "nodes": [{"type_key": ""}, {"type_key": "Map", "keys": ["relay.Constant"], "data": [2]},
 {"type_key": "Array", "data": [3]}, {"type_key": "relay.Constant", "attrs": {"data": "0", "span": "0"}}],
 "b64ndarrays": ["P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAAAAAAIgAQAEAAAAAAAAAAAAAD8="], "attrs": {"tvm_version": "0.14.0"}}
"""


MASKED = b"""def @main(%x: Tensor[(2, 2), float32], %m: Tensor[(2, 2), bool]) {
  where(%m, %x, negative(%x))
}
"""
LAYERS = """def @main(%x: Tensor[(1, 2, 4, 4), float32], %w: Tensor[(2, 2, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=2, kernel_size=[3, 3]);
  %1 = split(%0, indices_or_sections=2, axis=1);
  %2 = fn (%v: Tensor[(1, 1, 4, 4), float32], Primitive=1) { nn.max_pool2d(%v, pool_size=[2, 2], strides=[2, 2]) };
  %3 = if (less(1f, 2f)) { %2(%1.0) } else { %2(%1.1) };
  reshape(%3, newshape=[0, -1])
}
"""
GRAPH = json.dumps({"nodes": [{"op": "null", "name": name} for name in ("x", "p0", "p1")]}).encode()


def old_booleans(values: np.ndarray) -> bytes:
    """Return a params file with an array %m of one-bit booleans, as written by releases up to 0.6."""
    whole = params_bytes({"m": values})
    at = whole.index(b"\x06\x08\x01\x00")
    return whole[:at] + b"\x01\x01\x01\x00" + whole[at + 4 :]


def files() -> dict[str, tuple[bytes, bytes]]:
    """Return every kind of readable file with parameters: (model, params)."""
    return {
        "text": (DENSE.encode(), PARAMS),
        "varied text": ((VARIED + METADATA).encode(), b""),
        "JSON": (dense_json(), PARAMS),
        "archive": (tar_bytes({"model.relay": DENSE.encode(), "model.params": PARAMS}), b""),
        "old booleans": (MASKED, old_booleans(np.eye(2, dtype=bool))),
        "layers in JSON": (json_of(LAYERS), b""),
        "compiled model": (
            tar_bytes(
                {
                    "src/default.relay": DENSE.encode(),
                    "parameters/default.params": params_bytes({"p0": W, "p1": B}),
                    "executor-config/graph/default.graph": GRAPH,
                }
            ),
            b"",
        ),
    }


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return `content` with one to four changes."""
    found = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        change = rng.randrange(5)
        if change == 0:
            found[at : at + 1] = bytes([rng.randrange(256)])
        elif change == 1:
            del found[at : at + rng.randint(1, 40)]
        elif change == 2:
            found[at:at] = found[at : at + rng.randint(1, 60)]
        elif change == 3:
            found[at : at + 1] = bytes([rng.choice(b"(){}[],;%@.0123456789-\"'=/*")])
        else:
            found[at : at + 8] = rng.choice([b"\xff" * 8, b"\x00" * 8, (1 << rng.randrange(64)).to_bytes(8, "little")])
    return bytes(found)


def rewired(content: bytes, rng: random.Random) -> bytes:
    """Return JSON with one to three changed values of its nodes, still valid JSON."""
    held = json.loads(content)
    nodes = held["nodes"]
    other = [*map(str, range(len(nodes))), "", "-1", "0.5", "1e400", "9" * 30, "9" * 5000, "float32", "None", "\ud800"]
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(nodes)
        change = rng.randrange(4)
        if change == 0:
            node["type_key"] = rng.choice(nodes)["type_key"]
        elif change == 1 and node.get("data"):
            node["data"][rng.randrange(len(node["data"]))] = rng.choice([rng.randrange(len(nodes)), -1, 1 << 70, None])
        elif change == 2:
            node["attrs"] = rng.choice([None, [], {"span": 3}, rng.choice(nodes).get("attrs")])
        elif node.get("attrs"):
            node["attrs"][rng.choice(list(node["attrs"]))] = rng.choice(other)
    return json.dumps(held).encode()


def read(model: bytes, params: bytes) -> bool:
    """Return whether a corrupted file can still be read; any error other than the two for files is raised."""
    try:
        load_model(model, params=params or None)
    except (ModelFormatError, UnsupportedOperator) as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 4000
        return False
    return True


def damages(count: int, seed: int) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield `count` corrupted files, alternately of every kind: the model's bytes or the parameters' are changed."""
    rng = random.Random(seed)
    kinds = files()
    for number in range(count):
        name = list(kinds)[number % len(kinds)]
        model, params = kinds[name]
        if "JSON" in name and rng.random() < 0.5:
            yield f"{name}, rewired", rewired(model, rng), params
        elif params and rng.random() < 0.4:
            yield f"{name}, params", model, damaged(params, rng)
        else:
            yield name, damaged(model, rng), params
