"""Other names for the symbols of an object of machine code, so that equal kernels of several names are compiled once.

Read and written are 64-bit little-endian ELF objects, as LLVM writes them on Linux. The names of a section's symbols
stand in one table of text; new ones go into a longer copy of it at the end of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_PLACE_OF_SECTIONS, _SIZES_OF_SECTIONS = 0x28, 0x3A  # in the head of the file
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_OFFSET, _SIZE = 24, 32  # of a section's fields
_SYMBOLS = 2  # the type of the section that holds them
_SYMBOL_BYTES = 24
_SEEN_BY_OTHERS = (1, 2)  # bindings: global, weak


def has_symbols(content: bytes) -> bool:
    """Whether renamed() reads such a file."""
    return content.startswith(_MAGIC)


def renamed(content: bytes, new_name: Callable[[str], str]) -> bytes:
    """The object `content` whose symbols have the names that `new_name` gives for theirs."""
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
    """The names that the object defines for others to link with."""
    found = set()
    for place, name in _symbols(content)[2]:
        _, info, _, section = struct.unpack_from("<IBBH", content, place)
        if info >> 4 in _SEEN_BY_OTHERS and section:
            found.add(name)
    return found


def _symbols(content: bytes) -> tuple[int, bytes, list[tuple[int, str]]]:
    """Where the header of the table of names is, that table, and where every symbol is with its name."""
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
