"""What changed between TVM's releases in the meaning of a Relay file, and in which release.

Where a file does not tell its release (text without metadata does not), shapes and numbers of operands decide, and
where they cannot, the newer meaning holds. Text of 0.6 and before tells by its first line, v0.0.4.
"""

from __future__ import annotations

from .tree import Release

# nn.batch_matmul(a, b) is a @ b transposed before, and what transpose_a and transpose_b say from here on.
BATCH_MATMUL_FLAGS = (0, 8)
# A vector as the condition of where chooses rows before, and is spread along the last axis from here on.
WHERE_SPREADS = (0, 8)
# The layout of a transposed convolution's weight is called OI... before, though inputs come first; IO... from here on.
INPUTS_FIRST = (0, 12)
# image.resize aligns corners unless told otherwise before; it has a coordinate_transformation_mode from here on.
RESIZE_MODES = (0, 7)


def before(release: Release, change: tuple[int, int]) -> bool:
    """Whether a file is known to be from before a change."""
    return release is not None and release < change


def since(release: Release, change: tuple[int, int]) -> bool:
    """Whether a file is known to be from the release of a change or a later one."""
    return release is not None and release >= change
