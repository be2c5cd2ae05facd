"""Renaming of symbols in object files, so that equal kernels with several names are compiled once.

Supports 64-bit little-endian ELF object files, as LLVM writes them on Linux. The symbol names of a section are in one
string table; new names are appended to a copy of it at the end of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_PLACE_OF_SECTIONS, _SIZES_OF_SECTIONS = 0x28, 0x3A  # offsets in the file header
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_OFFSET, _SIZE = 24, 32  # offsets of section header fields
_SYMBOLS = 2  # type of the symbol table section
_SYMBOL_BYTES = 24
_SEEN_BY_OTHERS = (1, 2)  # bindings: global, weak


def has_symbols(content: bytes) -> bool:
    """Return whether renamed() supports this file."""
    return content.startswith(_MAGIC)


def renamed(content: bytes, new_name: Callable[[str], str]) -> bytes:
    """The object file `content` with symbols renamed by `new_name`."""
    header, names, symbols = _symbols(content)
    changed, added = bytearray(content), bytearray()
    for place, name in symbols:
        new = new_name(name)
        if new != name:
            struct.pack_into("<I", changed, place, len(names) + len(added))
            added += new.encode() + b"\0"
    if not added:
        return content
    struct.pack_into("<Q", changed, header + _OFFSET, len(changed))
    struct.pack_into("<Q", changed, header + _SIZE, len(names) + len(added))
    return bytes(changed + names + added)


def defined_names(content: bytes) -> set[str]:
    """The names that the object file defines for the linker."""
    found = set()
    for place, name in _symbols(content)[2]:
        _, info, _, section = struct.unpack_from("<IBBH", content, place)
        if info >> 4 in _SEEN_BY_OTHERS and section:
            found.add(name)
    return found


def _symbols(content: bytes) -> tuple[int, bytes, list[tuple[int, str]]]:
    """The offset of the string table's section header, the table, and all symbols as (offset, name)."""
    (start,) = struct.unpack_from("<Q", content, _PLACE_OF_SECTIONS)
    size, count = struct.unpack_from("<HH", content, _SIZES_OF_SECTIONS)
    sections = [_SECTION.unpack_from(content, start + size * number) for number in range(count)]
    table = next(section for section in sections if section[1] == _SYMBOLS)
    link = table[6]
    names = content[sections[link][4] : sections[link][4] + sections[link][5]]
    places = range(table[4], table[4] + table[5], _SYMBOL_BYTES)
    firsts = [struct.unpack_from("<I", content, place)[0] for place in places]
    texts = [names[first : names.index(b"\0", first)].decode() for first in firsts]
    return start + size * link, names, list(zip(places, texts, strict=True))
