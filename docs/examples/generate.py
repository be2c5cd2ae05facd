"""Token generation by a language model whose caches are updated in place.

The decoder is small and has random weights. Use a model written by onnxruntime-genai's builder, or any model with
`past_key_values.0.key` ... among its inputs and `present.0.key` ... among its outputs.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt


def decoder(words: int = 80, width: int = 64, heads: int = 2) -> onnx.ModelProto:
    """One layer of attention over a cache, and logits."""
    rng = np.random.default_rng(0)
    sizes = {
        "table": (words, width),
        "q": (width, width),
        "k": (width, width),
        "v": (width, width),
        "out": (width, words),
    }
    constants = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    constants |= {"one": np.array(1), "axis": np.array([1])}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        *(helper.make_node("MatMul", ["x", name], [f"x_{name}"]) for name in "qkv"),
        helper.make_node("ReduceSum", ["attention_mask", "axis"], ["seen"], keepdims=0),
        helper.make_node("Sub", ["seen", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["count"]),
        helper.make_node("Cast", ["count"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["x_q", "x_k", "x_v", "past_key_values.0.key", "past_key_values.0.value", "lengths", "total"],
            ["y", "present.0.key", "present.0.value"],
            domain="com.microsoft",
            num_heads=heads,
            kv_num_heads=heads,
        ),
        helper.make_node("MatMul", ["y", "out"], ["logits"]),
    ]
    kind, head = TensorProto.FLOAT, width // heads
    ids = [
        ("input_ids", TensorProto.INT64, ["batch", "length"]),
        ("attention_mask", TensorProto.INT64, ["batch", "total"]),
    ]
    past = [(f"past_key_values.0.{name}", kind, ["batch", heads, "past", head]) for name in ("key", "value")]
    present = [(f"present.0.{name}", kind, ["batch", heads, "total", head]) for name in ("key", "value")]
    inputs = [helper.make_tensor_value_info(*value) for value in (*ids, *past)]
    outputs = [
        helper.make_tensor_value_info(*value) for value in (("logits", kind, ["batch", "length", words]), *present)
    ]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "decoder", inputs, outputs, held), opset_imports=opsets, ir_version=10
    )


onnx.save(decoder(), "decoder.onnx")
exe = tt.compile("decoder.onnx")
made = tt.generate(exe, [1, 2, 3], max_new=16)
print("greedy:", made.tokens, f"{made.rate:.0f} tokens per second")
print("sampled:", tt.generate(exe, [1, 2, 3], max_new=16, top_p=0.9, seed=1).tokens)

session = exe.session(room=64)  # the same, step by step, with room for 64 tokens
prompt = [1, 2, 3]
logits = session.run(input_ids=np.array([prompt]), attention_mask=np.ones((1, 3), np.int64))
assert int(logits[0, -1].argmax()) == made.tokens[0]

small = tt.compile("decoder.onnx", weights="int4", block=32)  # weights in 4 bits, with a scale for each block of 32
print(small.precision)
print("4 bits:", tt.generate(small, prompt, max_new=16).tokens)
