"""Prefixes the symbols of an exported library with the model's name, so that several static libraries can be linked
into one program.

plan.c, launch.c and the kernels have functions of the same names in every model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..object_names import defined_names, renamed

_FUNCTION = re.compile(r"\b(tvm_tiling_\w+)\(")  # types of such names are not renamed
# functions that kernels call, and by which they are called
_OF_TVM = re.compile(r"(__tvm_ffi_|__TVM|TVMFFI|TVMBackend)\w+")


def own_symbol(name: str, symbol: str) -> str:
    """The symbol with the prefix of the model `name`."""
    return f"{name}_{symbol}"


def with_own_symbols(name: str, sources: Mapping[str, str]) -> dict[str, str]:
    """C sources of one program by file name, with the shared symbols prefixed by the model `name`."""
    functions = {found for text in sources.values() for found in _FUNCTION.findall(text)}

    def own(found: re.Match[str]) -> str:
        word = found[0]
        return own_symbol(name, word) if word in functions or _OF_TVM.fullmatch(word) else word

    return {path: re.sub(r"\b[A-Za-z_]\w*", own, text) for path, text in sources.items()}


def objects_with_own_symbols(name: str, objects: Iterable[bytes]) -> list[bytes]:
    """Kernel object files with the defined symbols, and those used from the sources, prefixed by the model `name`."""
    contents = list(objects)
    defined = set().union(*map(defined_names, contents))

    def own(symbol: str) -> str:
        return own_symbol(name, symbol) if symbol in defined or _OF_TVM.fullmatch(symbol) else symbol

    return [renamed(content, own) for content in contents]
