"""`tvm-tiling generate`: generate text or tokens with a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..errors import WorkloadError
from ..figures import quantity
from .model_options import (
    ACTIVATIONS,
    BATCH,
    DETERMINISTIC,
    DIM,
    MODEL,
    SHAPE,
    TARGET,
    THREADS,
    WEIGHT_BLOCK,
    WEIGHTS,
    ModelOptions,
    is_gguf,
    opened,
    require_file,
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
EXPECTED = "use --tokens 1,2,3, or --prompt TEXT with a GGUF file or --tokenizer tokenizer.json"


def command(
    model: str = MODEL,
    tokens: str = typer.Option("", "--tokens", metavar="IDS", help="Prompt as token ids: 1,2,3."),
    prompt: str = typer.Option(
        "", "--prompt", metavar="TEXT", help="Prompt as text; needs --tokenizer, or a GGUF file with a tokenizer."
    ),
    tokenizer: str = typer.Option(
        "", "--tokenizer", metavar="FILE", help="A tokenizer.json, or a GGUF file with a tokenizer."
    ),
    max_new: int = typer.Option(64, "--max-new", metavar="N", min=1, help="Maximum number of tokens to generate."),
    top_p: float | None = typer.Option(
        None,
        "--top-p",
        metavar="P",
        help="Sample from the most likely tokens whose probabilities add up to P; default: the most likely token.",
    ),
    temperature: float = typer.Option(1.0, "--temperature", metavar="T", help="Divisor of the logits in sampling."),
    seed: int = typer.Option(0, "--seed", metavar="N", help="Seed of the sampling."),
    stop: str = typer.Option(
        "", "--stop", metavar="IDS", help="Token ids that end the generation: 2 or 2,3; default: those of a GGUF file."
    ),
    target: str = TARGET,
    batch: str = BATCH,
    dim: list[str] = DIM,
    shape: list[str] = SHAPE,
    threads: int | None = THREADS,
    weights: str = WEIGHTS,
    block: int = WEIGHT_BLOCK,
    activations: str = ACTIVATIONS,
    deterministic: bool = DETERMINISTIC,
    as_json: bool = typer.Option(False, "--json", help="Print tokens, text and throughput as JSON."),
) -> None:
    """Continue a prompt with a language model. The key/value caches are kept between steps."""
    from ..model.generate import generate

    require_file(model)
    source = tokenizer or (model if prompt and is_gguf(model) else "")
    words = _tokenizer(source) if source else None
    if tokens and not prompt:
        given = _ids("--tokens", tokens)
    elif prompt and not tokens and words is not None:
        given = words.encode(prompt)
    else:
        what = "two prompts are given" if tokens and prompt else "the prompt is missing"
        raise WorkloadError(f"{'--prompt needs a tokenizer' if prompt and not tokens else what}; {EXPECTED}")
    logits = "last" if is_gguf(model) else "all"
    typed = ModelOptions(
        batch=batch,
        dim=dim,
        shape=shape,
        weights=weights,
        block=block,
        activations=activations,
        logits=logits,
        target=target,
        threads=threads,
        deterministic=deterministic,
    )
    executable = opened(model, typed)
    found: list[int] = []
    shown = ""

    def show(token: int) -> None:
        """Print the text so far. A token may hold part of a character, which is printed when it is complete."""
        nonlocal shown
        found.append(token)
        text = words.decode(found) if words is not None else " ".join(map(str, found))
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
    prompted = f"prompt: {quantity(made.prompt, 'token')}, {made.prompt_rate:.1f} tokens/s"
    typer.echo(f"{prompted}; generated: {quantity(len(made.tokens), 'token')}, {made.rate:.1f} tokens/s", err=True)


def _ids(option: str, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and len(part) < 19 for part in parts):
        raise WorkloadError(f"{option} {text} is not a list of token ids; expected 1,2,3")
    return [int(part) for part in parts]


_TOKENIZER = "a tokenizer.json or a GGUF file"


def _tokenizer(path: str) -> Tokenizer:
    """The tokenizer of a tokenizer.json, or of a GGUF file."""
    from ..frontend.gguf.tokenizer import OfPackage, tokenizer_of

    require_file(path, _TOKENIZER)
    if is_gguf(path):
        return tokenizer_of(path)
    try:
        from tokenizers import Tokenizer as Made
    except ImportError:
        raise WorkloadError(
            "--tokenizer needs the package tokenizers: pip install 'tvm-tiling[text]'; or use --tokens"
        ) from None
    try:
        return OfPackage(Made.from_file(path))
    except Exception as error:
        why = " ".join(str(error).split())[:100]
        raise WorkloadError(f"{path} is not a tokenizer ({why}); expected {_TOKENIZER}") from None
