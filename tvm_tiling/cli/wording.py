"""Errors in the terms of the command line: options instead of the arguments of Python functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import nearest

_ARGUMENTS = {
    "activations": "--activations",
    "batch": "--batch",
    "block": "--block",
    "calibration": "--calibration",
    "delay": "--delay",
    "factor": "--factor",
    "candidates": "--candidates",
    "algorithm": "--algorithm",
    "form": "--algorithm",
    "kind": "--kind",
    "logits": "--logits",
    "max_new": "--max-new",
    "mode": "--mode",
    "order": "--order",
    "precision": "--precision",
    "prefer": "--prefer",
    "runner": "--runner",
    "seconds": "--seconds",
    "target": "--target",
    "temperature": "--temperature",
    "threads": "--threads",
    "threshold": "--threshold",
    "tolerance": "--tolerance",
    "top_p": "--top-p",
    "trials": "--trials",
    "weights": "--weights",
}
_NAMES = "|".join(_ARGUMENTS)
_QUOTED = r"'([^']*)'"


def _option(match: re.Match[str]) -> str:
    return f"{_ARGUMENTS[match[1]]} {match[2]}"


# Order matters. Each rule rewrites how the errors of compile(), decide(), tune() and the model readers name arguments.
_REWRITTEN: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"limits=Limits\([a-z_]+=\.\.\.\), ", ""),
    (r"^deterministic = True", "--deterministic"),
    (r"calibration=\[inputs\]", "--calibration inputs.npz"),
    (r"dims={'([^']*)': \.\.\.}", r"--dim \1=N"),
    (r"dims\['([^']*)'\]", r"--dim \1"),
    (r"shapes={'([^']*)': \(\.\.\.\)}", r"--shape \1=N,N,..."),
    (r"params={'([^']*)': value}", r"--params with a value for \1"),
    (r"batch=(\.\.\.|N\b)", "--batch N"),
    (r"busy=True", "--busy"),
    (r"^runner '([^']*)'", r"--runner \1"),
    (r"^limit '([^']*)' is not a number with a name", r"--model-limit \1 is not a limit"),
    (r"a path or the bytes of (an ONNX.* file), an onnx\.ModelProto.*", r"\1"),
    (r"a file written by Program\.save\(\)", "a file written by simulate --save"),
    (r"a file written by save\(\)", "a file written by compile"),
    (r"^pareto: unknown objective '([^']*)'[:;]", r"--pareto \1 is not an objective;"),
    (r"^name = '([^']*)'(?=; expected letters)", r"--name \1"),
    (r"calibration\[(\d+)\]", lambda match: f"--calibration, file {int(match[1]) + 1}"),
    (r"shapes\['([^']*)'\] = \(([\d, ]*?),?\)", lambda match: f"--shape {match[1]}={match[2].replace(' ', '')}"),
    (r"shapes names ", "--shape names "),
    (r"dims names ", "--dim names "),
    (r"batch is given", "--batch is given"),
    (r"batch and dims result in", "--batch and --dim result in"),
    (r"\b(by )?batch, dims or shapes\b", r"\1--batch, --dim or --shape"),
    (r"pass shapes= of", "use --shape for"),
    (rf"(?<![\w.-])({_NAMES}) ?= ?{_QUOTED}", _option),
    (rf"^({_NAMES}) = (\S+?)(?=[,;:]| )", _option),
    (r"; expected None$", ""),
    (r"; expected None, ", "; expected "),
    (r"^(--\S+ \S+); expected", r"\1 is not supported; expected"),
)


def in_command_terms(text: str) -> str:
    """An error with arguments of Python functions written as options."""
    for pattern, replacement in _REWRITTEN:
        text = re.sub(pattern, replacement, text)
    return text


def usage_sentence(error: Any, commands: Sequence[str]) -> str:
    """What Typer's parser refuses, as one sentence that refers to the command's help."""
    context = error.ctx
    path = context.command_path if context is not None else "tvm-tiling"
    kind, message = type(error).__name__, " ".join(error.format_message().split()).rstrip(".")
    parameter = getattr(error, "param", None)
    if kind == "NoSuchOption":
        known = ["--help"]
        options = [own for own in context.command.params if own.param_type_name == "option"]
        known += [name for own in options for name in own.opts if not getattr(own, "hidden", False)]
        of_operators = any("OPERATOR" in str(own.metavar) for own in context.command.params)
        if of_operators and re.match(r"-\d", error.option_name):
            said = f"{error.option_name} is neither a size nor an option; expected sizes of at least 1"
        else:
            said = f"unknown option {error.option_name}; {_likely(error.option_name, known)}"
    elif kind == "MissingParameter" and parameter is not None:
        said = f"{_named(parameter)} is missing"
    elif kind == "BadParameter" and parameter is not None:
        said = f"{_named(parameter)}{_value(error)}"
    elif found := re.fullmatch(r"No such command '(.*?)'.*", message):
        known = list(getattr(context.command, "commands", {})) or list(commands)
        said = f"unknown command '{found[1]}'; {_likely(found[1], known)}"
    elif found := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        said = f"unexpected argument '{found[1]}'"
    elif found := re.fullmatch(r"Option '(.*)' requires an argument", message):
        said = f"{found[1]} needs a value"
    else:
        said = message[:1].lower() + message[1:]
    return f"{said}{' S' if said.endswith('?') else '; s'}ee {path} --help"


def _likely(word: str, known: Sequence[str]) -> str:
    """The known name most like `word`, or all of them."""
    hint, _, names = nearest(word, known).partition("expected ")
    return hint.replace("'", "").strip() or f"expected {names}"


def _named(parameter: Any) -> str:
    """An option by its long name, an argument by its metavar."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).strip("[]").upper()
    return next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0])


_VALUE = re.compile(r"'?(\S*?)'? is not (?:in the range|a valid) (.*)")
_EXPECTED = (
    (r".*greater than or equal to (\S+)", r"at least \1"),
    (r".*less than or equal to (\S+)", r"at most \1"),
    (r"(\S+?)<=x<=(\S+)", r"\1 to \2"),
    (r"x>=(\S+)", r"at least \1"),
    (r"x<=(\S+)", r"at most \1"),
    (r".*int.*", "a whole number"),
    (r".*(number|float).*", "a number"),
)


def _value(error: Any) -> str:
    """A refused value and the expected ones, from the messages of Typer's parser or of Click's."""
    message = str(error.message).rstrip(".")
    details = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []
    value = f" {details[0]['input']}" if details else ""
    if found := _VALUE.fullmatch(message):
        value, message = f" {found[1]}", found[2]
    for pattern, expected in _EXPECTED:
        if re.fullmatch(pattern, message):
            # Typer's versions differ in writing whole numbers as floats.
            return re.sub(r"(?<=\d)\.0\b", "", f"{value}: expected {re.sub(pattern, expected, message)}")
    return f"{value}: {message}"
