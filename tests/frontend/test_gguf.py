"""GGUF files: tensors compared with the package gguf, decoders compared with their definition, corrupted files
refused."""

from __future__ import annotations

import gc
import json
import struct

import gguf
import numpy as np
import pytest
import tvm
from gguf_files import TYPES, Sizes, logits_of, random_rows, write_decoder
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.cli.app import main
from tvm_tiling.decide.gemm.blocked import BlockedProduct
from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.blocked_weights import Stored, product_in_blocks
from tvm_tiling.frontend.blocked_weights import stored as emit_stored
from tvm_tiling.frontend.gguf.file import GgufFile
from tvm_tiling.frontend.gguf.model import GgufModel
from tvm_tiling.frontend.gguf.types import TENSOR_TYPES
from tvm_tiling.frontend.node_names import NamingBuilder
from tvm_tiling.frontend.open_shapes import OpenShapes
from tvm_tiling.lowering.described import described_function
from tvm_tiling.lowering.weight_panels import Panels
from tvm_tiling.runtime.pages import Contents, _Part

TOKENS = [1, 5, 99, 3, 7, 42, 8]
IN_BLOCKS = [number for number, kind in TENSOR_TYPES.items() if kind.encoding is not None]


def stored(number, n=24, k=512):
    """Return random weights of a type, and the same as floats."""
    data = random_rows(np.random.default_rng(number), n, k, TYPES(number))
    kind = TENSOR_TYPES[number]
    product = BlockedProduct(rows=1, n=n, k=k, encoding=kind.encoding)
    held = Stored(kind.name, (tvm.runtime.tensor(data),), product)
    return held, gguf.quants.dequantize(data, TYPES(number))


@pytest.mark.parametrize("number", IN_BLOCKS, ids=lambda number: TENSOR_TYPES[number].name)
def test_what_is_stored_is_what_gguf_dequantises(number):
    """Plain loops read one weight of each column at a time: a row of the identity is exact."""
    weights, floats = stored(number, n=3, k=256)
    n, k = floats.shape
    product = BlockedProduct(rows=k, n=n, k=k, encoding=weights.product.encoding)
    library = tvm.compile(tvm.IRModule({"main": described_function(product, "main")}), target="llvm")
    given = [tvm.runtime.tensor(np.eye(k, dtype=np.float32)), weights.records()]
    given.append(tvm.runtime.tensor(np.zeros((k, n), np.float32)))
    library["main"](*given)
    np.testing.assert_array_equal(given[-1].numpy().T, floats)


@pytest.mark.values
@pytest.mark.parametrize("number", [8, 12, 13, 14, 3], ids=lambda number: TENSOR_TYPES[number].name)
@pytest.mark.parametrize(("activations", "most"), [("float32", 5e-6), ("int16", 1e-4), ("int8", 3e-2)])
def test_kernels_of_few_and_of_many_rows(number, activations, most):
    weights, floats = stored(number)
    k = floats.shape[1]
    bb, shapes = NamingBuilder(), OpenShapes()
    bb.shapes = shapes
    x = relax.Var("x", relax.TensorType([shapes.variable("rows"), k], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            held = emit_stored(bb, weights.layout, [relax.const(part) for part in weights.parts], weights.product)
            y = bb.emit_output(product_in_blocks(bb, x, held, weights.product, activations))
        bb.emit_func_output(y)
    executable = tt.compile(bb.get(), cache=False)
    for rows in (1, 5, 67):
        given = np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)
        wanted = given.astype(np.float64) @ floats.T.astype(np.float64)
        error = np.abs(executable.run(given) - wanted).max() / np.abs(wanted).max()
        assert error < most


@pytest.mark.parametrize(
    ("architecture", "kind", "tied"),
    [("llama", "Q4_K", False), ("qwen2", "Q6_K", True), ("qwen3", "Q8_0", False), ("llama", "BF16", True)],
)
def test_decoders_compute_what_their_definition_says(architecture, kind, tied, tmp_path):
    sizes = Sizes(architecture=architecture, layers=1, tied=tied)
    weights = write_decoder(tmp_path / "model.gguf", sizes, TYPES[kind])
    executable = tt.compile(tmp_path / "model.gguf", cache=False)
    wanted = logits_of(weights, sizes, [*TOKENS, 11, 12])
    session = executable.session(room=16)
    assert session.in_place
    new, seen = TOKENS, 0
    for after in ([11], [12], []):
        mask = np.ones((1, seen + len(new)), np.int64)
        found = session.run(input_ids=np.array([new]), attention_mask=mask)
        np.testing.assert_allclose(found[0], wanted[seen : seen + len(new)], atol=1e-4 * np.abs(wanted).max())
        new, seen = after, seen + len(new)
    made = tt.generate(executable, TOKENS, 1)
    assert made.tokens == (wanted[len(TOKENS) - 1].argmax(),)
    with pytest.raises(tt.WorkloadError, match=r"index 100 .* is out of range"):
        tt.generate(executable, [100], 1)


def test_weights_are_packed_one_after_the_other_from_the_file(tmp_path, monkeypatch):
    sizes = Sizes(layers=1, width=512, heads=8, groups=8, inner=1024, words=2000, tied=True)
    write_decoder(tmp_path / "model.gguf", sizes, TYPES.Q8_0)
    held, pieces = [], []
    pack, pack_some = Panels.pack, Panels._pack_some

    def counted(self, rows, into):
        gc.collect()  # which is rare in tests
        held.append(sum(type(each) is _Part for each in gc.get_objects()))
        pack(self, rows, into)

    def measured(self, found, into, columns):
        pieces.append(found.values.size)
        pack_some(self, found, into, columns)

    monkeypatch.setattr(Panels, "pack", counted)
    monkeypatch.setattr(Panels, "_pack_some", measured)
    tt.compile(tmp_path / "model.gguf", cache=False)
    # The table is packed once for the output layer and for the rows that are read from it.
    assert held == [*range(8, 0, -1)]
    assert max(pieces) < 3 << 19


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    """Return a file, and the logits of a prompt by definition."""
    path, sizes = tmp_path_factory.mktemp("gguf") / "decoder.gguf", Sizes(layers=1, most=8)
    return path, logits_of(write_decoder(path, sizes, TYPES.Q4_K), sizes, TOKENS)


def logits_by(executable, tokens=TOKENS):
    session = executable.session(room=16)
    return session.run(input_ids=np.array([tokens]), attention_mask=np.ones((1, len(tokens)), np.int64))[0]


@pytest.fixture(scope="module")
def compiled(decoder, tmp_path_factory):
    """Return the file compiled in each form, once for all tests; each again comes from a cache, and no other does."""
    forms = {"float32": {}, "last": {"logits": "last"}, "int8": {"activations": "int8"}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_TILING_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = {}
        for name, given in forms.items():
            made[name] = tt.compile(decoder[0], **given), tt.compile(decoder[0], **given)
    return made


def test_logits_of_the_last_position_alone(decoder, compiled):
    path, wanted = decoder
    executable, _ = compiled["last"]
    np.testing.assert_allclose(logits_by(executable), wanted[-1:], atol=1e-4 * np.abs(wanted).max())
    assert tt.generate(executable, TOKENS, 1).tokens == (wanted[-1].argmax(),)
    for logits, said in (
        ("first", "logits = 'first'; expected all, last"),
        ("last", "is supported only for GGUF files"),
    ):
        with pytest.raises(TilingError, match=said):
            tt.compile(path if logits == "first" else relax_model(), logits=logits, cache=False)


def relax_model():
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([2, 8], "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(relax.op.add(x, x))
        bb.emit_func_output(y)
    return bb.get()


def test_rows_in_8_bits(decoder, compiled):
    path, wanted = decoder
    executable, _ = compiled["int8"]
    error = np.abs(logits_by(executable) - wanted).max() / np.abs(wanted).max()
    assert 1e-4 < error < 0.02
    for given, said in (
        ({"activations": "int4"}, "activations = 'int4'; did you mean 'int8'"),
        (
            {"activations": "int8", "precision": "bfloat16"},
            "activations = 'int8' is not supported on .* expected a CPU and 'float32'",
        ),
    ):
        with pytest.raises(tt.WorkloadError, match=said):
            tt.compile(path, cache=False, **given)
    with pytest.raises(tt.WorkloadError, match="the model has no block-quantised weights"):
        tt.compile(relax_model(), activations="int8", cache=False)


def test_other_rows_and_logits_are_kept_apart_in_the_cache(compiled):
    for first, second in compiled.values():
        assert not first.from_cache and second.from_cache


def test_a_context_that_is_full_is_identified_by_its_size(compiled, tmp_path, capsys):
    executable, _ = compiled["float32"]
    said = r"^the model's context of 8 tokens: position 8 at \[0, 0\] is out of range; expected 0 to 7$"
    with pytest.raises(tt.WorkloadError, match=said):
        tt.generate(executable, TOKENS, 4, stop=())
    executable.save(tmp_path / "model.tar")
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(tmp_path / "model.tar"), "--tokens", "1,2,3,4,5,6,7,8,9"])
    assert ended.value.code == 1
    assert "the model's context of 8 tokens: position 8 at [0, 8] is out of range" in capsys.readouterr().err


def test_end_tokens_go_with_a_saved_model(compiled, tmp_path):
    executable, _ = compiled["float32"]
    executable.save(tmp_path / "model.tar")
    assert tt.load(tmp_path / "model.tar").signature.end_tokens == executable.signature.end_tokens == (2,)


def test_scaled_positions(tmp_path):
    sizes = Sizes(layers=1, width=256, words=40)
    changed = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    weights = write_decoder(tmp_path / "model.gguf", sizes, TYPES.F32, changed=changed)
    executable = tt.compile(tmp_path / "model.gguf", batch=1, cache=False)
    frequencies = sizes.base ** (-np.arange(32) / 32) / 4
    session = executable.session(room=8)
    found = session.run(input_ids=np.array([TOKENS[:2]]), attention_mask=np.ones((1, 2), np.int64))
    np.testing.assert_allclose(found[0], logits_of(weights, sizes, TOKENS[:2], frequencies), atol=1e-4)


def test_the_command_ends_with_the_files_last_token(tmp_path, capsys, monkeypatch):
    path = tmp_path / "model.gguf"
    write_decoder(path, Sizes(layers=1, words=40), TYPES.Q4_0)
    monkeypatch.setattr("tvm_tiling.frontend.gguf.model._ENDS", ("bos",))
    words = ["generate", str(path), "--tokens", "1,2", "--max-new", "6", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code
    tokens = json.loads(capsys.readouterr().out)["tokens"]
    assert len(tokens) == 6
    content = path.read_bytes()
    at = content.index(b"tokenizer.ggml.eos_token_id") + len(b"tokenizer.ggml.eos_token_id") + 4
    path.write_bytes(content[:at] + struct.pack("<I", tokens[1]) + content[at + 4 :])
    monkeypatch.undo()
    with pytest.raises(SystemExit):
        main(words)
    assert json.loads(capsys.readouterr().out)["tokens"] == tokens[: tokens.index(tokens[1]) + 1]
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(path), "--prompt", "Once"])
    assert ended.value.code == 1
    assert "has no tokenizer; expected --tokenizer tokenizer.json" in capsys.readouterr().err


# ---- files of strangers ----------------------------------------------------------------------------------------------

SMALL = Sizes(layers=1, width=64, heads=2, groups=1, head=32, inner=64, words=40)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_decoder(path, SMALL, TYPES.Q8_0)
    return path.read_bytes()


def read(content):
    return GgufModel(GgufFile(Contents(content), "the file"))


def patched(content, after, layout, *values, skip=0):
    """Return `content` with numbers after the first occurrence of `after`."""
    at = content.index(after) + len(after) + skip
    made = struct.pack(layout, *values)
    return content[:at] + made + content[at + len(made) :]


def test_truncated_files_are_refused(small):
    end = len(small)
    header = small.index(b"blk.0.ffn_down.weight") + 60
    for size in [*range(4, header, 7), *range(header, end, 997), end - 40]:
        with pytest.raises(TilingError):
            tt.compile(small[:size], cache=False)


def test_corrupted_headers_are_refused_or_read(small):
    rng = np.random.default_rng(0)
    header = small.index(b"blk.0.ffn_down.weight") + 60
    for _ in range(2000):
        content = bytearray(small)
        for place in rng.integers(4, header, rng.integers(1, 4)):
            content[place] = rng.integers(0, 256)
        try:
            read(bytes(content))
        except TilingError as error:
            assert "\n" not in str(error)


TABLE = b"token_embd.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c[:4] + struct.pack("<I", 1) + c[8:], "a GGUF file of version 1; expected"),
        (lambda c: c[:4] + struct.pack(">I", 3) + c[8:], "a GGUF file big-endian; expected"),
        (lambda c: c[:8] + struct.pack("<Q", 1 << 60) + c[16:], "1152921504606846976 tensors; expected up to 131072"),
        (lambda c: c[:16] + struct.pack("<Q", 1 << 60) + c[24:], "metadata values; expected up to 65536"),
        (lambda c: c.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0bloom"), "architecture 'bloom'; expected"),
        (lambda c: patched(c, TABLE, "<I", 9), "'token_embd.weight' has 9 axes; expected 1 to 4"),
        (lambda c: patched(c, TABLE, "<Q", 1 << 50, skip=4), "'token_embd.weight' has shape .*; expected extents"),
        (lambda c: patched(c, TABLE, "<I", 99, skip=20), "'token_embd.weight' has unknown type 99"),
        (lambda c: patched(c, TABLE, "<Q", 1 << 40, skip=24), "'token_embd.weight' ends at byte"),
        (
            lambda c: patched(c, TABLE, "<Q", 3, skip=24),
            "'token_embd.weight' starts at byte 3; expected multiples of 32",
        ),
        (lambda c: patched(c, TABLE, "<Q", 2752, skip=24), "tensors .* overlap"),
        (
            lambda c: c.replace(b"llama.rope.dimension_count", b"llama.rope.dimension_cannt"),
            "unknown metadata .*; expected",
        ),
        (
            lambda c: patched(c, b"llama.block_count", "<I", 1 << 30, skip=4),
            "'blk.1073741823.attn_norm.weight' is m",
        ),
        (lambda c: patched(c, b"llama.attention.head_count_kv", "<I", 3, skip=4), "2 query heads for 3 key heads"),
        (lambda c: patched(c, b"rms_epsilon", "<f", float("nan"), skip=4), "rms_epsilon' is nan; expected"),
        (
            lambda c: patched(c, b"llama.context_length", "<I", 1 << 30, skip=4),
            "the table of rotary angles is a constant",
        ),
        (lambda c: patched(c, b"llama.feed_forward_length", "<I", 96, skip=4), r"has shape \[64, 64\]; expected"),
        (lambda c: c.replace(b"blk.0.ffn_down.weight", b"blk.0.ffn_dawn.weight"), "'blk.0.ffn_down.weight' is missing"),
        (lambda c: patched(c, TABLE, "<I", 20, skip=20), "has type IQ4_NL; expected F32"),
    ],
)
def test_what_is_wrong_is_said(small, change, said):
    with pytest.raises(TilingError, match=said):
        tt.compile(change(small), cache=False)


def test_options(small):
    with pytest.raises(tt.ModelFormatError, match="params cannot be given: a GGUF file holds its weights"):
        tt.compile(small, params={"x": np.zeros(1)})
    with pytest.raises(tt.ModelFormatError, match="dims names 'length'; expected 'batch_size'"):
        tt.compile(small, dims={"length": 4})
    with pytest.raises(tt.ModelFormatError, match=r"shapes\['input_ids'\] = \(1, 2, 3\)"):
        tt.compile(small, shapes={"input_ids": (1, 2, 3)})
