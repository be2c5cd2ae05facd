"""`tvm-tiling generate`: tokens by a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..errors import WorkloadError
from .model_options import (
    ACTIVATIONS,
    BATCH,
    DIM,
    MODEL,
    SHAPE,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    is_gguf,
    opened,
)
from .output import print_json

if TYPE_CHECKING:
    from ..frontend.gguf.tokenizer import Tokenizer

EXAMPLES = (
    "tvm-tiling generate decoder.onnx --tokens 1,2,3 --max-new 64",
    "tvm-tiling generate decoder.gguf --tokens 1,2,3",
    'tvm-tiling generate decoder.gguf --prompt "Once upon a time" --activations int8',
    'tvm-tiling generate decoder.onnx --tokenizer tokenizer.json --prompt "Once upon a time" --top-p 0.9 --seed 1',
)
ACCEPTED = "accepted: --tokens 1,2,3, or --prompt TEXT with --tokenizer tokenizer.json or of a GGUF file"


def command(
    model: str = MODEL,
    tokens: str = typer.Option("", "--tokens", help="Ids of the prompt: 1,2,3."),
    prompt: str = typer.Option("", "--prompt", help="The prompt as text; needs --tokenizer, or one in a GGUF file."),
    tokenizer: str = typer.Option(
        "", "--tokenizer", help="A tokenizer.json, read by the package `tokenizers`, or a GGUF file that has one."
    ),
    max_new: int = typer.Option(64, "--max-new", help="The most new tokens."),
    top_p: float | None = typer.Option(
        None, "--top-p", help="Draw from the most likely tokens of so much probability; left out: the likeliest."
    ),
    temperature: float = typer.Option(1.0, "--temperature", help="Divides logits before a token is drawn."),
    seed: int = typer.Option(0, "--seed", help="Of the draws."),
    stop: str = typer.Option("", "--stop", help="Ids that end it: 2, or 2,3; left out: those that a GGUF file names."),
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    as_json: bool = typer.Option(False, "--json", help="Print tokens, text and rates as JSON."),
) -> None:
    """Write new tokens behind a prompt, with the model's caches kept from step to step, and how many a second."""
    from ..model.generate import generate

    source = tokenizer or (model if prompt and is_gguf(model) else "")
    words = _tokenizer(source) if source else None
    if tokens and not prompt:
        given = _ids("--tokens", tokens)
    elif prompt and not tokens and words is not None:
        given = words.encode(prompt)
    else:
        raise WorkloadError(f"a prompt by tokens or by text is needed; {ACCEPTED}")
    logits = "last" if is_gguf(model) else "all"
    typed = ModelOptions(batch, dim, shape, weights=weights, block=block, activations=activations, logits=logits)
    executable = opened(model, typed)
    found: list[int] = []
    shown = ""

    def show(token: int) -> None:
        """Text as far as it has grown: a token may be part of a letter, which is shown when it is whole."""
        nonlocal shown
        found.append(token)
        text = words.decode(found) if words is not None else f"{shown}{token} "
        if not text.endswith("\ufffd"):
            typer.echo(text[len(shown) :], nl=False)
            shown = text

    made = generate(
        executable,
        given,
        max_new,
        top_p=top_p,
        temperature=temperature,
        seed=seed,
        stop=_ids("--stop", stop) if stop else None,
        on_token=None if as_json else show,
    )
    if as_json:
        text = {"text": words.decode(list(made.tokens))} if words is not None else {}
        rates = {"prompt_tokens_per_second": made.prompt_rate, "tokens_per_second": made.rate}
        print_json({"tokens": list(made.tokens), **text, **rates})
        return
    typer.echo()
    told = f"prompt: {made.prompt} tokens, {made.prompt_rate:.1f} a second; new: {len(made.tokens)}"
    typer.echo(f"{told}, {made.rate:.1f} a second", err=True)


def _ids(option: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise WorkloadError(f"{option} {text}: no ids, accepted: 1,2,3")
    return [int(part) for part in parts]


def _tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a tokenizer.json, or of a GGUF file."""
    from ..frontend.gguf.tokenizer import OfPackage, tokenizer_of

    if is_gguf(path):
        return tokenizer_of(path)
    try:
        from tokenizers import Tokenizer as Made
    except ImportError:
        raise WorkloadError(
            "--tokenizer needs the package tokenizers (pip install 'tvm_tiling[text]'); or give ids by --tokens"
        ) from None
    try:
        return OfPackage(Made.from_file(path))
    except Exception as error:
        raise WorkloadError(f"{path}: no tokenizer ({' '.join(str(error).split())[:100]})") from None
