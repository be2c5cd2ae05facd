"""Tokenizers of GGUF files: byte-level BPE compared with one trained by the package tokenizers, merges by score
compared with their definition, and refusals. The ids and texts of five trained tokenizers equalled llama.cpp's, on 726
texts each: prose, code, random characters."""

from __future__ import annotations

import itertools
import json

import gguf
import numpy as np
import pytest
from gguf_files import TYPES, Sizes, write_decoder

from tvm_tiling.cli.app import main
from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.gguf.tokenizer import tokenizer_of

tokenizers = pytest.importorskip("tokenizers")

TEXTS = (
    "Hello world",
    "  two spaces, a\ttab\n\n and lines\r\n",
    "don't we'LL they're 1234567 1,234.5",
    "naïve café “quotes” 日本語 русский 😀😀",
    "x<tool>y <|end|>z",
    "",
)
TRAINED = [*TEXTS, "the world of tokens, said the token to the word; then the other words said hello"] * 3


def written(path, model, tokens, types, **more):
    """Return a file that contains only a tokenizer."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    if types is not None:
        writer.add_token_types(types)
    for name, value in more.items():
        if isinstance(value, bool):
            writer.add_bool(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"tokenizer.ggml.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"tokenizer.ggml.{name}", value)
        else:
            writer.add_array(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


# ---- byte-level BPE --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained():
    """Return a tokenizer whose pieces are those of GPT-2, with its tokens and merges."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(TRAINED, trainer)
    made.add_special_tokens(["<|end|>"])
    made.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    model = json.loads(made.to_str())["model"]
    return made, sorted(model["vocab"], key=model["vocab"].get), [" ".join(merge) for merge in model["merges"]]


def of_trained(path, trained, **more):
    _, tokens, merges = trained
    types = [1] * len(tokens) + [3, 4]
    given = {"pre": "gpt-2", "merges": merges, "bos_token_id": len(tokens), **more}
    return written(path, "gpt2", [*tokens, "<|end|>", "<tool>"], types, **given)


def test_byte_level_tokens(trained, tmp_path):
    found, made = tokenizer_of(of_trained(tmp_path / "t.gguf", trained)), trained[0]
    for text in TEXTS:
        ids = made.encode(text).ids
        assert found.encode(text) == ids
        assert found.decode(ids) == made.decode(ids)


def test_pieces_of_letters_and_of_digits(trained, tmp_path):
    """In llama three digits are a piece, in qwen2 one; spaces belong to the following piece."""
    end = len(trained[1])
    for pre, digits, begin in (("llama-bpe", ["123", "456", "7"], [end]), ("qwen2", list("1234567"), [])):
        found = tokenizer_of(of_trained(tmp_path / f"{pre}.gguf", trained, pre=pre))
        ids = found.encode("1234567 ")
        assert ids[: len(begin)] == begin
        pieces = [token for piece in (*digits, " ") for token in found.encode(piece)[len(begin) :]]
        assert ids[len(begin) :] == pieces


def test_tokens_around_a_text(trained, tmp_path):
    end = len(trained[1])
    path = of_trained(tmp_path / "t.gguf", trained, add_bos_token=True, add_eos_token=True, eos_token_id=end)
    inside = trained[0].encode("Hello").ids
    assert tokenizer_of(path).encode("Hello") == [end, *inside, end]


# ---- SentencePiece ---------------------------------------------------------------------------------------------------

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def pieces_of(text, scores):
    """By definition: the best pair of neighbours is merged, the first of several."""
    pieces = list(text)
    while True:
        joined = [a + b for a, b in itertools.pairwise(pieces)]
        pairs = [(-scores[each], place) for place, each in enumerate(joined) if each in scores]
        if not pairs:
            return pieces
        _, place = min(pairs)
        pieces[place : place + 2] = ["".join(pieces[place : place + 2])]


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("distinct", [True, False])
def test_the_best_pair_is_joined_first(distinct, prefix, tmp_path):
    rng = np.random.default_rng(distinct)
    letters = ["▁", *"abc", "é"]
    words = {"".join(rng.choice(letters, rng.integers(2, 5))) for _ in range(60)} | {"▁▁", "▁▁▁", "▁▁▁▁"}
    normal = [*letters, *sorted(words)]
    scores = rng.permutation(len(normal)) if distinct else rng.integers(0, 4, len(normal))
    tokens = ["<unk>", "<s>", *BYTES, *normal, "<tool>"]
    of_all = [0.0, 0.0, *[0.0] * 256, *scores.astype(float), 0.0]
    types = [2, 3, *[6] * 256, *[1] * len(normal), 4]
    path = written(tmp_path / "t.gguf", "llama", tokens, types, scores=of_all, bos_token_id=1, add_space_prefix=prefix)
    found, known = tokenizer_of(path), dict(zip(normal, scores.tolist(), strict=True))
    for _ in range(60):
        text = "".join(rng.choice([*" abcé", "d"], rng.integers(1, 30)))
        wanted = [1]
        for piece in pieces_of((" " * prefix + text).replace(" ", "▁"), known):
            own = [tokens.index(f"<0x{byte:02X}>") for byte in piece.encode()]
            wanted += [258 + normal.index(piece)] if piece in known else own
        assert found.encode(text) == wanted
        assert found.decode(wanted) == " " * prefix + text
    ab = found.encode("a")[1:], found.encode("b")[1:]
    assert found.encode("a<tool>b<s>") == [1, *ab[0], len(tokens) - 1, *ab[1], 1]
    assert found.decode([1, tokens.index("<0xC3>")]) == "\ufffd"


# ---- refused ---------------------------------------------------------------------------------------------------------

PLAIN = {"pre": "gpt-2", "merges": ["a b"]}
JOINED = {"pre": "gpt-2", "merges": ["b a"]}


@pytest.mark.parametrize(
    ("model", "tokens", "types", "more", "said"),
    [
        ("bert", ["a"], None, {}, "has a tokenizer 'bert'; expected --tokenizer tokenizer.json"),
        ("none", ["a"], None, {}, "has no tokenizer; expected"),
        ("gpt2", ["a"], None, {"merges": ["a b"]}, "a tokenizer without 'pre'; expected"),
        ("gpt2", ["a"], None, {"pre": "tekken", "merges": ["a b"]}, "with unknown pre-tokenizer 'tekken'; expected"),
        ("gpt2", ["a", "b", "a"], None, PLAIN, "has duplicate tokens"),
        ("gpt2", ["a", "b"], None, PLAIN, "merges' has 'a b', which does not form a token"),
        ("gpt2", ["a", "b"], None, {"pre": "gpt-2"}, "'tokenizer.ggml.merges' is not an array of strings"),
        ("gpt2", ["a", "b"], [1], PLAIN, "'tokenizer.ggml.token_type' is not an array of 2 numbers"),
        ("gpt2", ["a", "b"], [1, 9], PLAIN, "types other than 1 to 6"),
        ("gpt2", ["a", "b", "ba"], None, {**JOINED, "bos_token_id": 3, "add_bos_token": True}, "bos_token_id' is 3"),
        ("gpt2", ["a", "b", "ba"], None, JOINED, "without byte tokens"),
        ("llama", ["a", "b"], None, {}, "'tokenizer.ggml.scores' is missing"),
        ("llama", ["a", "b"], None, {"scores": [0.0, 1.0]}, "without byte tokens"),
    ],
)
def test_what_cannot_be_built_is_refused(model, tokens, types, more, said, tmp_path):
    with pytest.raises(TilingError, match=said):
        tokenizer_of(written(tmp_path / "t.gguf", model, tokens, types, **more))


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_takes_the_files_tokenizer(trained, tmp_path, capsys):
    path = tmp_path / "model.gguf"
    tokens = [*trained[1], "<|end|>", "<tool>"]
    write_decoder(path, Sizes(layers=1, words=len(tokens)), TYPES.Q8_0)
    words = ["generate", str(path), "--max-new", "3", "--json"]
    vocabulary = of_trained(tmp_path / "t.gguf", trained)
    made = []
    for given in (
        ["--prompt", "Hello world", "--tokenizer", vocabulary],
        ["--tokens", ",".join(map(str, trained[0].encode("Hello world").ids))],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*words, *given])
        assert not ended.value.code
        made.append(json.loads(capsys.readouterr().out))
    assert made[0]["tokens"] == made[1]["tokens"]
    assert made[0]["text"] == trained[0].decode(made[0]["tokens"])
    with pytest.raises(SystemExit) as ended:
        main([*words, "--prompt", "Hello"])
    assert ended.value.code == 1
    assert "has no tokenizer; expected --tokenizer tokenizer.json" in capsys.readouterr().err
