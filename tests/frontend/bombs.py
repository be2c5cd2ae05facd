"""Small models that request gigabytes or hours, and a program that compiles each in a separate process.

python bombs.py prints a line of JSON for each: name, bytes of the file, processor seconds and growth of peak memory
during compilation, both beyond those of importing this package and compiling a small model, and the message. Each runs
in a fork of one process that has imported everything, with a limit on its address space.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.errors import TilingError
from tvm_tiling.frontend import load_model
from tvm_tiling.limits import MAX_EXTENT

SPACE = 4 << 30  # bytes of address space beyond the process that has imported everything
SECONDS = 60  # of processor time, after which the process is ended
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

Bomb = tuple[Any, dict[str, Any]]  # a model and the options of compile()


def graph(nodes, inputs=(), constants=(), outputs=("y",), functions=(), opset=17, kind=FLOAT) -> bytes:
    """An ONNX file. `inputs`: (name, shape); `constants`: (name, values)."""
    made = helper.make_graph(
        nodes,
        "bomb",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(values), name) for name, values in constants],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid("own", 1) for _ in functions[:1])]
    return helper.make_model(made, opset_imports=opsets, functions=functions, ir_version=8).SerializeToString()


def node(kind: str, *inputs: str, out: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [out], **attributes)


def int64(*values: int) -> np.ndarray:
    return np.array(values, "int64")


def nested_functions(depth: int, fan: int = 2, recursive: bool = False) -> bytes:
    """Each function calls the one below `fan` times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "f0", ["a"], ["b"], [node("Neg", "a", out="b")], opsets)]
    if recursive:
        functions = [helper.make_function("own", "f0", ["a"], ["b"], [own(f"f{depth}", "a", "b")], opsets)]
    for level in range(1, depth + 1):
        calls = [own(f"f{level - 1}", f"t{i}" if i else "a", f"t{i + 1}" if i + 1 < fan else "b") for i in range(fan)]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["b"], calls, opsets))
    return graph([own(f"f{depth}", "x", "y")], [("x", [2, 3])], functions=functions)


def own(name: str, before: str, after: str) -> onnx.NodeProto:
    return helper.make_node(name, [before], [after], domain="own")


def doubling_constants() -> bytes:
    """Forty levels, each of which concatenates a constant with itself."""
    nodes = [node("Concat", f"c{i}", f"c{i}", out=f"c{i + 1}", axis=0) for i in range(40)]
    nodes.append(node("ReduceSum", "c40", out="s", keepdims=0))
    return graph([*nodes, node("Add", "x", "s")], [("x", [2])], [("c0", np.ones(64, "float32"))])


def hidden_vector() -> bytes:
    """A vector whose length follows from a partially known shape, with a dynamic number of nonzero elements."""
    nodes = [
        node("NonZero", "x", out="places"),
        node("Shape", "places", out="s"),
        node("Gather", "s", "zero", out="one", axis=0),
        node("Mul", "one", "many", out="length"),
        *vector_sum("length"),
    ]
    return graph(nodes, [("x", [4])], [("zero", int64(0)), ("many", int64(1 << 28))])


def shapes_of_shapes(levels: int) -> bytes:
    """A chain of tensors, each with the shape of the previous one, and a vector of that shape."""
    nodes = []
    for level in range(levels):
        nodes.append(node("Shape", f"t{level}", out=f"s{level}"))
        nodes.append(node("Reshape", f"t{level}", f"s{level}", out=f"t{level + 1}"))
    nodes += [node("Shape", f"t{levels}", out="length"), *vector_sum("length")]
    return graph(nodes, [("t0", [1 << 28])])


def vector_sum(length: str) -> list[onnx.NodeProto]:
    one = helper.make_tensor("one", INT64, [1], [1])
    return [
        node("ConstantOfShape", length, out="c", value=one),
        node("Add", "c", "c", out="d"),
        node("Cast", "d", out="f", to=FLOAT),
        node("ReduceSum", "f", keepdims=0),
    ]


def relay_tuples() -> bytes:
    lines = ["  let %t0 = (%x, %x);", *(f"  let %t{i} = (%t{i - 1}, %t{i - 1});" for i in range(1, 40))]
    return relay(lines, "%t39")


def relay_deep_tuples() -> bytes:
    lines = ["  let %t0 = (%x,);", *(f"  let %t{i} = (%t{i - 1},);" for i in range(1, 5000))]
    return relay(lines, "%t4999")


def relay_functions() -> bytes:
    """Functions without an operator, each calling the previous one twice."""
    kind = "Tensor[(2, 3), float32]"
    lines = [f"def @f0(%x: {kind}) -> {kind} {{\n  %x\n}}"]
    lines += [f"def @f{i}(%x: {kind}) -> {kind} {{\n  @f{i - 1}(@f{i - 1}(%x))\n}}" for i in range(1, 60)]
    lines.append(f"def @main(%x: {kind}) -> {kind} {{\n  @f59(%x)\n}}")
    return ('#[version = "0.0.5"]\n' + "\n".join(lines) + "\n").encode()


def relay_closures() -> bytes:
    """The same with functions that are values."""
    kind = "Tensor[(2, 3), float32]"
    lines = [f"  let %f0 = fn (%a: {kind}) {{ %a }};"]
    lines += [f"  let %f{i} = fn (%a: {kind}) {{ %f{i - 1}(%f{i - 1}(%a)) }};" for i in range(1, 60)]
    return relay(lines, "%f59(%x)")


def relay(lines: list[str], result: str, kind: str = "Tensor[(2, 3), float32]") -> bytes:
    body = "\n".join([*lines, f"  {result}"])
    return f'#[version = "0.0.5"]\ndef @main(%x: {kind}) {{\n{body}\n}}\n'.encode()


def relay_json_types() -> bytes:
    """Types that are pairs of the type below, forty levels of them; attribute values likewise."""
    nodes: list[Any] = [{"type_key": ""}]

    def put(kind: str, attrs: dict[str, str] | None = None, **more: Any) -> int:
        nodes.append({"type_key": kind, **({"attrs": attrs} if attrs else {}), **more})
        return len(nodes) - 1

    kind = put("relay.TensorType", {"dtype": "float32", "shape": str(put("Array", data=[]))})
    for _ in range(40):
        kind = put("TupleType", {"fields": str(put("Array", data=[kind, kind]))})
    name = put("relay.Id", {"name_hint": str(put("runtime.String", repr_str="x"))})
    variable = put("relay.Var", {"vid": str(name), "type_annotation": str(kind), "_checked_type_": str(kind)})
    params = put("Array", data=[variable])
    root = put("relay.Function", {"params": str(params), "body": str(variable)})
    held = {"root": root, "nodes": nodes, "b64ndarrays": [], "attrs": {"tvm_version": "0.10.0"}}
    return json.dumps(held).encode()


def relax_tuples(depth: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for _ in range(depth):
                value = builder.emit(relax.Tuple([value, value]))
            for _ in range(depth):
                value = builder.emit(relax.TupleGetItem(value, 0))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.finalize()


def relax_chain(*shape: int, body: Callable[[relax.Expr], relax.Expr]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(body(x))
        builder.emit_func_output(out)
    return builder.finalize()


def open_input() -> bytes:
    return graph([node("Relu", "x")], [("x", ["batch", "width"])])


HUGE = 1 << 40
SCALAR = np.zeros((), "float32")
W1 = np.ones((1, 4), "float32")


def bombs() -> dict[str, Callable[[], Bomb]]:
    """Return, by name, functions that create a model."""
    x4 = [("x", [1, 4])]
    image = [("x", [1, 1, 4, 4])]

    def of(content: Any, **options: Any) -> Bomb:
        return content, options

    return {
        "matmul_k": lambda: of(graph([node("MatMul", "x", "w")], [("x", [1, MAX_EXTENT]), ("w", [MAX_EXTENT, 1])])),
        "input_square": lambda: of(graph([node("Relu", "x")], [("x", [1 << 20, 1 << 20])])),
        "tile": lambda: of(graph([node("Tile", "x", "r")], x4, [("r", int64(HUGE, 1))])),
        "tile_constant": lambda: of(
            graph(
                [node("Tile", "c", "r", out="t"), node("Add", "x", "t")],
                x4,
                [("c", W1), ("r", int64(1 << 30, 1))],
            )
        ),
        "range": lambda: of(
            graph(
                [node("Range", "a", "b", "c")],
                [],
                [("a", np.array(0)), ("b", np.array(HUGE)), ("c", np.array(1))],
                kind=INT64,
            )
        ),
        "range_floats": lambda: of(
            graph(
                [node("Range", "a", "b", "c")],
                [],
                [("a", SCALAR), ("b", np.array(1e12, "float32")), ("c", np.array(1, "float32"))],
            )
        ),
        "range_computed": lambda: of(
            graph(
                [node("Mul", "b", "b", out="bb"), node("Range", "a", "bb", "c", out="r"), node("Add", "x", "r")],
                [("x", [1])],
                [("a", SCALAR), ("b", np.array(1e6, "float32")), ("c", np.array(1, "float32"))],
            )
        ),
        "expand": lambda: of(graph([node("Expand", "x", "s")], [("x", [1, 1])], [("s", int64(1 << 20, 1 << 20))])),
        "expand_constant": lambda: of(
            graph([node("Expand", "c", "s", out="e"), node("Add", "x", "e")], x4, [("c", W1), ("s", int64(1 << 28, 4))])
        ),
        "constant_of_shape": lambda: of(
            graph([node("ConstantOfShape", "s", out="c"), node("Add", "x", "c")], x4, [("s", int64(HUGE))])
        ),
        "constant_of_shape_2g": lambda: of(
            graph([node("ConstantOfShape", "s", out="c"), node("Add", "x", "c")], x4, [("s", int64(1 << 27, 4))])
        ),
        "pad": lambda: of(graph([node("Pad", "x", "p")], x4, [("p", int64(0, 0, HUGE, 0))])),
        "pad_constant": lambda: of(
            graph(
                [node("Pad", "c", "p", out="q"), node("Add", "x", "q")], x4, [("c", W1), ("p", int64(0, 0, 1 << 28, 0))]
            )
        ),
        "resize": lambda: of(
            graph([node("Resize", "x", "", "s")], image, [("s", np.array([1, 1, 1e6, 1e6], "float32"))])
        ),
        "resize_sizes": lambda: of(
            graph([node("Resize", "x", "", "", "s")], image, [("s", int64(1, 1, 1 << 20, 1 << 20))])
        ),
        "one_hot": lambda: of(
            graph(
                [node("Cast", "x", out="i", to=INT64), node("OneHot", "i", "d", "v")],
                x4,
                [("d", np.array(HUGE)), ("v", np.array([0, 1], "float32"))],
            )
        ),
        "one_hot_constant": lambda: of(
            graph(
                [node("OneHot", "i", "d", "v", out="o"), node("ReduceSum", "o", out="s"), node("Add", "x", "s")],
                x4,
                [("i", int64(1, 2)), ("d", np.array(1 << 29)), ("v", np.array([0, 1], "float32"))],
            )
        ),
        "eye_like": lambda: of(
            graph(
                [node("ConstantOfShape", "s", out="c"), node("EyeLike", "c", out="e"), node("ReduceSum", "e")],
                [],
                [("s", int64(1 << 15, 1 << 15))],
            )
        ),
        "outer_product": lambda: of(graph([node("MatMul", "x", "w")], [("x", [1 << 20, 1]), ("w", [1, 1 << 20])])),
        "broadcast": lambda: of(graph([node("Add", "x", "w")], [("x", [1 << 20, 1]), ("w", [1, 1 << 20])])),
        "einsum": lambda: of(
            graph([node("Einsum", "x", "w", equation="a,b->ab")], [("x", [1 << 20]), ("w", [1 << 20])])
        ),
        "conv_transpose": lambda: of(
            graph(
                [node("ConvTranspose", "x", "w", strides=[1 << 20, 1 << 20])],
                image,
                [("w", np.ones((1, 1, 1, 1), "float32"))],
            )
        ),
        "conv_padding": lambda: of(
            graph([node("Conv", "x", "w", pads=[1 << 20] * 4)], image, [("w", np.ones((1, 1, 1, 1), "float32"))])
        ),
        "doubling_constants": lambda: of(doubling_constants()),
        "hidden_vector": lambda: of(hidden_vector()),
        "shapes_of_shapes": lambda: of(shapes_of_shapes(500)),
        "functions": lambda: of(nested_functions(30)),
        "functions_medium": lambda: of(nested_functions(17)),
        "functions_deep": lambda: of(nested_functions(5000, fan=1)),
        "functions_recursive": lambda: of(nested_functions(3, recursive=True)),
        "rnn_steps": lambda: of(
            graph(
                [node("RNN", "x", "w", "r", hidden_size=1)],
                [("x", [MAX_EXTENT, 1, 1])],
                [("w", np.ones((1, 1, 1), "float32")), ("r", np.ones((1, 1, 1), "float32"))],
            )
        ),
        "rnn_wide": lambda: of(
            graph(
                [node("LSTM", "x", "w", "r", hidden_size=1 << 16)],
                [("x", [2, 1, 1]), ("w", [1, 1 << 18, 1]), ("r", [1, 1 << 18, 1 << 16])],
            )
        ),
        "batch": lambda: of(open_input(), batch=MAX_EXTENT, dims={"width": 4}),
        "batch_number": lambda: of(open_input(), batch=10**30, dims={"width": 4}),
        "dims": lambda: of(open_input(), batch=1, dims={"width": MAX_EXTENT}),
        "dims_number": lambda: of(open_input(), batch=1, dims={"width": 10**30}),
        "shapes": lambda: of(open_input(), shapes={"x": (1 << 20, 1 << 20)}),
        "shapes_number": lambda: of(open_input(), shapes={"x": (10**30, 1)}),
        "relay_tuples": lambda: of(relay_tuples()),
        "relay_deep_tuples": lambda: of(relay_deep_tuples()),
        "relay_functions": lambda: of(relay_functions()),
        "relay_closures": lambda: of(relay_closures()),
        "relay_types": lambda: of(relay_json_types()),
        "relay_input": lambda: of(relay([], "nn.relu(%x)", "Tensor[(1048576, 1048576), float32]")),
        "relay_tile": lambda: of(relay([], "tile(%x, reps=[2000000000, 2000000000])")),
        "relay_full": lambda: of(relay([], 'add(%x, zeros(shape=[1000000, 2, 3000000], dtype="float32"))')),
        "relay_repeat": lambda: of(
            relay(['  let %c = zeros(shape=[1], dtype="float32");'], "repeat(%c, repeats=2000000000)")
        ),
        "relax_tuples": lambda: of(relax_tuples(40)),
        "relax_broadcast": lambda: of(relax_chain(1, 4, body=lambda x: relax.op.broadcast_to(x, (1 << 34, 4)))),
        "relax_constant": lambda: of(
            relax_chain(1, 4, body=lambda x: relax.op.add(x, relax.op.broadcast_to(relax.const(W1), (1 << 26, 4))))
        ),
        "relax_input": lambda: of(relax_chain(1 << 20, 1 << 20, body=relax.op.nn.relu)),
        "work": lambda: of(graph([node("Conv", "x", "w")], [("x", [1, 1, 1 << 29]), ("w", [1, 1, 1 << 28])])),
    }


def measure(make: Callable[[], Bomb]) -> dict[str, Any]:
    """Return the cost of compiling one, in this process."""
    model, options = make()
    size = len(model) if isinstance(model, bytes) else 0
    before, start = peak(), time.process_time()
    try:
        tt.compile(model, cache=False, **options)
        said = "compiled"
    except TilingError as error:
        said = f"{type(error).__name__}: {error}"
    except BaseException as error:  # any error is reported to the test
        said = f"raw {type(error).__name__}: {str(error)[:200]}"
    return {"size": size, "seconds": time.process_time() - start, "grown": peak() - before, "said": said}


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def warmed() -> None:
    """Import what reading and importing a model imports, without starting threads."""
    load_model(graph([node("Relu", "x")], [("x", [1, 4])]))
    load_model(nested_functions(1))
    load_model(relay([], "nn.relu(%x)"))
    load_model(relax_tuples(1))
    from tvm_tiling.model import compilation  # noqa: F401


def main(names: list[str]) -> None:
    warmed()
    makers = bombs()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
    for name in names or makers:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (used + SPACE, used + SPACE))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            print(json.dumps({"name": name, **measure(makers[name])}), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"name": name, "said": f"ended with status {status}"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
