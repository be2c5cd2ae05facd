"""Sessions: caches in place, recurrent states, and tokens of a small decoder, compared with onnxruntime."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.cli.app import main

onnxruntime = pytest.importorskip("onnxruntime")
PROMPT = [7, 300, 12, 4, 499, 0, 81]


@pytest.fixture(scope="module")
def decoder():
    from benchmarks.language_graph import DECODERS
    from benchmarks.language_graph import decoder as graph

    return DECODERS["small"], graph(DECODERS["small"])


@pytest.fixture(scope="module")
def executable(decoder):
    return tt.compile(decoder[1], activations="float32", cache=False)


@pytest.fixture(scope="module")
def theirs(decoder):
    """Return greedy tokens and logits of 30 steps by onnxruntime, with caches passed on."""
    sizes, proto = decoder
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [f"past_key_values.{number}.{name}" for number in range(sizes.layers) for name in ("key", "value")]
    caches = dict.fromkeys(names, np.zeros((1, sizes.groups, 0, sizes.head), np.float32))
    tokens, logits, new, length = [], [], list(PROMPT), len(PROMPT)
    for _ in range(30):
        mask = np.ones((1, length), np.int64)
        found = session.run(None, {"input_ids": np.array([new]), "attention_mask": mask, **caches})
        caches = dict(zip(names, found[1:], strict=True))
        logits.append(found[0][0, -1])
        tokens.append(int(logits[-1].argmax()))
        new, length = [tokens[-1]], length + 1
    return tokens, logits


def test_caches_in_place(executable, theirs):
    session = executable.session(room=40)
    assert session.in_place
    assert session.states["present.1.value"] == "past_key_values.1.value"
    for _ in range(2):  # the second time after a reset
        new, length = list(PROMPT), len(PROMPT)
        for token, wanted in zip(*theirs, strict=True):
            mask = np.ones((1, length), np.int64)
            found = session.run(input_ids=np.array([new]), attention_mask=mask)
            np.testing.assert_allclose(found[0, -1], wanted, atol=1e-4)
            new, length = [token], length + 1
        session.reset()


def test_a_cache_that_is_full_says_so_and_stays(executable):
    session = executable.session(room=8)
    session.run(input_ids=np.array([PROMPT]), attention_mask=np.ones((1, 7), np.int64))
    full = r"the cache of 'present.0.key' holds 8 rows; expected at least 9, set by room="
    with pytest.raises(tt.WorkloadError, match=full):
        session.run(input_ids=np.array([[1, 2]]), attention_mask=np.ones((1, 9), np.int64))
    session.run(input_ids=np.array([[1]]), attention_mask=np.ones((1, 8), np.int64))


def test_the_memory_is_the_same_in_every_run(executable):
    session = executable.session(room=32)
    session.run(input_ids=np.array([PROMPT]), attention_mask=np.ones((1, 7), np.int64))
    before = {number: value.ctypes.data for number, value in session._values.items()}
    session.run(input_ids=np.array([[3]]), attention_mask=np.ones((1, 8), np.int64))
    assert {number: value.ctypes.data for number, value in session._values.items()} == before


def test_states_given_by_name_are_copied(executable, decoder):
    sizes = decoder[0]
    session = executable.session(room=16)
    cache = np.zeros((1, sizes.groups, 16, sizes.head), np.float32)
    given = {"past_key_values.0.key": cache}
    session.run(input_ids=np.array([PROMPT]), attention_mask=np.ones((1, 7), np.int64), **given)
    assert not cache.any()


def test_saved_and_loaded(executable, theirs, tmp_path):
    executable.save(tmp_path / "decoder.tar")
    made = tt.generate(tt.load(tmp_path / "decoder.tar"), PROMPT, 12)
    assert list(made.tokens) == theirs[0][:12]


def test_greedy_tokens_are_onnxruntimes(executable, theirs):
    made = tt.generate(executable, PROMPT, 30)
    assert list(made.tokens) == theirs[0]
    assert made.prompt == len(PROMPT)
    assert made.rate > 0
    assert made.prompt_rate > 0
    cut = tt.generate(executable, PROMPT, 30, stop=[theirs[0][3]])
    assert len(cut.tokens) == theirs[0].index(theirs[0][3]) + 1


def test_drawn_tokens_follow_their_seed(executable):
    draws = [tt.generate(executable, PROMPT, 12, top_p=0.95, temperature=2.0, seed=seed).tokens for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert tt.generate(executable, PROMPT, 5, top_p=1e-9).tokens == tt.generate(executable, PROMPT, 5).tokens


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tokens": []}, "tokens is empty"),
        ({"tokens": [1], "max_new": 0}, "max_new = 0; expected a whole number"),
        ({"tokens": [1], "top_p": 0}, "top_p = 0; expected a number above 0, up to 1"),
        ({"tokens": [1], "temperature": 0}, "temperature = 0; expected a number above 0"),
        ({"tokens": [500]}, "index 500 .* is out of range"),
    ],
)
def test_what_cannot_be_generated_is_refused(executable, given, said):
    with pytest.raises(tt.WorkloadError, match=said):
        tt.generate(executable, **given)


def test_the_command(decoder, theirs, tmp_path, capsys):
    (tmp_path / "decoder.onnx").write_bytes(decoder[1].SerializeToString())
    words = ["generate", str(tmp_path / "decoder.onnx"), "--tokens", ",".join(map(str, PROMPT)), "--max-new", "8"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["tokens"] == theirs[0][:8]
    assert found["tokens_per_second"] > 0
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(tmp_path / "decoder.onnx")])
    assert ended.value.code == 1
    assert "the prompt is missing" in capsys.readouterr().err


def graph(nodes, inputs, outputs, constants):
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values]
        for values in (inputs, outputs)
    ]
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_graph(nodes, "states", *ends, held)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_recurrent_states():
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((1, 32, 6)), "r": rng.standard_normal((1, 32, 8))}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h0", "c0"], ["y", "hn", "cn"], hidden_size=8)
    state = [1, "batch", 8]
    proto = graph(
        [node],
        [("x", ["steps", "batch", 6]), ("h0", state), ("c0", state)],
        [("y", ["steps", 1, "batch", 8]), ("hn", state), ("cn", state)],
        {name: value.astype(np.float32) for name, value in constants.items()},
    )
    executable = tt.compile(proto, cache=False)
    x = rng.standard_normal((7, 2, 6)).astype(np.float32)
    none = np.zeros((1, 2, 8), np.float32)
    wanted = executable.run(x=x, h0=none, c0=none)[0]
    session = executable.session()
    assert session.states == {"hn": "h0", "cn": "c0"}
    assert not session.in_place
    found = np.concatenate([session.run(x=part) for part in (x[:3], x[3:4], x[4:])])
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_caches_that_the_model_joins_itself():
    """As exporters without contributed operators emit them: Concat of the past and the new rows."""
    node = helper.make_node("Concat", ["past_key", "x"], ["present_key"], axis=2)
    total = helper.make_node("ReduceSum", ["present_key"], ["y"], keepdims=1)
    past, whole = [1, 2, "past", 4], [1, 2, "total", 4]
    proto = graph(
        [node, total],
        [("past_key", past), ("x", [1, 2, "new", 4])],
        [("y", [1, 1, 1, 1]), ("present_key", whole)],
        {},
    )
    session = tt.compile(proto, cache=False, dims={"past": (0, 64)}).session()
    assert session.states == {"present_key": "past_key"}
    for count in (1, 2, 3):
        total = session.run(x=np.ones((1, 2, 2, 4), np.float32))
        assert float(total.reshape(())) == 16 * count


def test_a_model_without_states_is_reported():
    proto = graph([helper.make_node("Relu", ["x"], ["y"])], [("x", [2])], [("y", [2])], {})
    executable = tt.compile(proto, cache=False)
    with pytest.raises(tt.WorkloadError, match="no output is named as a state: 'y'; expected states="):
        executable.session()
    with pytest.raises(tt.WorkloadError, match="states names 'z'"):
        executable.session({"z": "x"})
    session = executable.session({"y": "x"})
    assert session.states == {"y": "x"}
    with pytest.raises(tt.WorkloadError, match="expected one of token ids, named 'input_ids'"):
        tt.generate(executable, [1])


def test_the_command_with_text(decoder, tmp_path, capsys):
    pytest.importorskip("tokenizers")
    from documented import tokenizer_bytes

    (tmp_path / "decoder.onnx").write_bytes(decoder[1].SerializeToString())
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_bytes())
    words = ["generate", str(tmp_path / "decoder.onnx"), "--prompt", "Once upon", "--max-new", "3"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--tokenizer", str(tmp_path / "tokenizer.json")])
    assert not ended.value.code
    found = capsys.readouterr()
    assert len(found.out.split()) == 3
    assert "prompt: 2 tokens" in found.err
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--tokenizer", str(tmp_path / "tokenizer.json")])
    assert ended.value.code == 1
    assert "not a tokenizer" in capsys.readouterr().err
