"""Import of decoders in GGUF files as Relax modules.

Inputs and outputs have the names and shapes of onnxruntime-genai's models: input_ids, attention_mask,
past_key_values.N.key and .value to logits, present.N.key and .value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from ...decide.gemm.blocked import BlockedProduct
from ...errors import ModelFormatError, TilingError, UnsupportedOperator
from ...limits import Limits
from ...operand_types import Encoding
from ...refusal import blocks_closed
from ...runtime.pages import Contents
from ...runtime.tensors import bytes_in_place, tensor_of
from ...sizes import MayBeEmpty, Named, OpenSizes, Shape
from ..blocked_weights import product_in_blocks, rows_of_blocks, stored
from ..decoder_attention import attended, counted, joined, reshaped, rotated, rows_of_tables
from ..imported import ImportedModel, check_dims, first_line
from ..node_names import NamingBuilder, NodeNames
from ..open_shapes import OpenShapes, Size
from .file import GgufFile, Tensor
from .model import GgufModel, end_tokens

BATCH, LENGTH, TOTAL, PAST = "batch_size", "sequence_length", "total_sequence_length", "past_sequence_length"


def import_gguf(
    contents: Contents,
    *,
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    dims: Mapping[str, int],
    where: str,
    limits: Limits,
    leave_open: bool = False,
    may_be_empty: MayBeEmpty = MayBeEmpty(),  # noqa: B008  which is frozen
    last_logits: bool = False,
) -> ImportedModel:
    """Import a decoder from the contents of its file. `shapes`, `batch` and `dims` fix dynamic dimensions; the others
    stay symbolic with `leave_open` and are refused without. With `last_logits`, only the logits of the last position
    are returned, [batch, 1, words]. Raises ModelFormatError, LimitError, UnsupportedOperator."""
    model = GgufModel(GgufFile(contents, where))
    d = model.sizes
    limits.require_nodes(f"{where}: layers", d.layers)
    limits.require_constants(f"{where}: the table of rotary angles", 8 * d.most * d.pairs, contents.size)
    cache = (BATCH, d.groups, PAST, d.head)
    declared: dict[str, tuple[tuple[int | str, ...], str]] = {
        "input_ids": ((BATCH, LENGTH), "int64"),
        "attention_mask": ((BATCH, TOTAL), "int64"),
        **{name: (cache, "float32") for name in _caches("past_key_values", d.layers)},
    }
    sizes = _given_sizes(declared, shapes, batch, dims, where)
    missing = [name for name in (BATCH, LENGTH, TOTAL, PAST) if name not in sizes]
    if missing and not leave_open:
        raise ModelFormatError(
            f"{where}: the dimensions {', '.join(map(repr, missing))} are dynamic; expected "
            f"dims={{{missing[0]!r}: ...}}"
        )
    opened = OpenShapes()
    for name in missing:
        opened.variable(name, may_be_empty.least(name, [BATCH]))
    known: dict[str, Size] = {
        name: sizes[name] if name in sizes else opened.variable(name) for name in (BATCH, LENGTH, TOTAL, PAST)
    }
    inputs = {
        name: relax.Var(name.replace(".", "_"), relax.TensorType(_extents(shape, known), dtype))
        for name, (shape, dtype) in declared.items()
    }
    try:
        module = _Decoder(model, known, opened, inputs, last_logits).module()
    except (TilingError, MemoryError):
        raise
    except Exception as error:
        raise UnsupportedOperator(f"{where}: cannot be imported: {first_line(error)}") from error
    model.refuse_left()
    plain = {name: _plain(shape, sizes) for name, (shape, _) in declared.items()}
    return ImportedModel(
        module=module,
        input_names=tuple(declared),
        input_shapes=tuple(plain.values()),
        input_dtypes=tuple(dtype for _, dtype in declared.values()),
        output_names=("logits", *_caches("present", d.layers)),
        source="gguf",
        open_sizes=opened.sizes() if missing else OpenSizes(),
        end_tokens=end_tokens(model.file),
    )


def _caches(start: str, layers: int) -> list[str]:
    return [f"{start}.{number}.{name}" for number in range(layers) for name in ("key", "value")]


def _extents(shape: Sequence[int | str], known: Mapping[str, Size]) -> list[Size]:
    return [extent if isinstance(extent, int) else known[extent] for extent in shape]


def _plain(shape: Sequence[int | str], sizes: Mapping[str, int]) -> Shape:
    return tuple(extent if isinstance(extent, int) else sizes.get(extent, Named(extent)) for extent in shape)


def _given_sizes(
    declared: Mapping[str, tuple[tuple[int | str, ...], str]],
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    dims: Mapping[str, int],
    where: str,
) -> dict[str, int]:
    """Return the requested sizes by name."""
    check_dims(dims, (BATCH, LENGTH, TOTAL, PAST), where)
    found = dict(dims)
    if batch is not None and found.setdefault(BATCH, batch) != batch:
        raise ModelFormatError(f"{where}: the first dimension is {batch} as batch and {found[BATCH]} in dims")
    unknown = sorted(set(shapes) - set(declared))
    if unknown:
        raise ModelFormatError(
            f"{where}: shapes names {', '.join(map(repr, unknown))}, which the model does not have as inputs"
        )
    for name, shape in shapes.items():
        own = declared[name][0]
        fits = len(shape) == len(own)
        for extent, size in zip(own, shape, strict=False):
            fits = fits and (found.setdefault(extent, size) if isinstance(extent, str) else extent) == size
        if not fits:
            raise ModelFormatError(f"{where}: shapes[{name!r}] = {tuple(shape)}; expected {own}, as in the model")
    return found


class _Decoder:
    """Builds the function "main". Variables carry the names of the tensors that they are computed with."""

    def __init__(
        self,
        model: GgufModel,
        sizes: Mapping[str, Size],
        opened: OpenShapes,
        inputs: Mapping[str, relax.Var],
        last_logits: bool,
    ) -> None:
        self.last_logits = last_logits
        self.model, self.d, self.inputs = model, model.sizes, inputs
        self.batch, self.length = sizes[BATCH], sizes[LENGTH]
        self.every = opened.larger(sizes[TOTAL], sizes[PAST])
        self.bb, self.names = NamingBuilder(), NodeNames()
        self.weights: dict[str, tuple[relax.Expr, BlockedProduct]] = {}
        self.bb.shapes = opened

    def module(self) -> tvm.IRModule:
        bb, d = self.bb, self.d
        with blocks_closed(bb), bb.function("main", list(self.inputs.values())):
            with bb.dataflow():
                self.called("attention_mask")
                before, angles = self.positions()
                x = self.words()
                caches: list[relax.Expr] = []
                for number in range(d.layers):
                    x = self.layer(f"blk.{number}", number, x, before, angles, caches)
                if self.last_logits:
                    x = self.last(x)
                x = self.normed(x, "output_norm.weight", d.width)
                tied = not self.model.has("output.weight")
                logits = self.product(x, "token_embd" if tied else "output", d.width, d.words)
                results = [bb.emit_output(each) for each in (logits, *caches)]
            bb.emit_func_output(relax.Tuple(results))
        bb.called = ""
        return self.names.attached(bb.get())

    def called(self, name: str) -> None:
        self.bb.called = self.names.variable(name)

    def last(self, x: relax.Expr) -> relax.Expr:
        """Return x at the last position, [batch, 1, width]."""

        def element(x: te.Tensor) -> te.Tensor:
            batch, length, width = x.shape
            end = tirx.max(length - 1, 0)  # 0 for batches without tokens
            return te.compute((batch, tirx.IntImm("int64", 1), width), lambda b, _, e: x[b, end, e], name="last")

        return self.bb.emit(self.bb.call_te(element, x, primfunc_name_hint="last"))

    def positions(self) -> tuple[relax.Expr, tuple[relax.Expr, ...]]:
        """Return how many tokens each batch has seen, and cosines and sines of the new ones, [batch, length, pairs]."""
        bb, d = self.bb, self.d
        seen = bb.emit(op.astype(bb.emit(op.sum(self.inputs["attention_mask"], [1])), "int32"))
        new = bb.emit(op.astype(bb.emit(op.shape_to_tensor(relax.ShapeExpr([self.length]))), "int32"))
        before = bb.emit(op.maximum(bb.emit(op.subtract(seen, new)), relax.const(0, "int32")))
        places = bb.emit(op.add(reshaped(bb, before, [self.batch, 1]), counted(bb, self.length, "int32")))
        angles = np.arange(d.most)[:, None] * self.model.frequencies()
        tables = [relax.const(tensor_of(turn(angles).astype(np.float32))) for turn in (np.cos, np.sin)]
        return before, tuple(rows_of_tables(bb, tables, places))

    def layer(
        self,
        name: str,
        number: int,
        x: relax.Expr,
        before: relax.Expr,
        angles: Sequence[relax.Expr],
        caches: list[relax.Expr],
    ) -> relax.Expr:
        """Return the output of layer `number` for x; its caches are appended to `caches`."""
        bb, d = self.bb, self.d
        normed = self.normed(x, f"{name}.attn_norm.weight", d.width)
        query = self.heads(normed, f"{name}.attn_q", d.heads)
        key, value = (self.heads(normed, f"{name}.attn_{part}", d.groups) for part in "kv")
        if self.model.architecture == "qwen3":
            query = self.normed(query, f"{name}.attn_q_norm.weight", d.head)
            key = self.normed(key, f"{name}.attn_k_norm.weight", d.head)
        query, key = (rotated(bb, each, *angles, interleaved=d.interleaved) for each in (query, key))
        past = [self.inputs[f"past_key_values.{number}.{part}"] for part in ("key", "value")]
        caches += [joined(bb, old, new, before, self.every) for old, new in zip(past, (key, value), strict=True)]
        keys, values = caches[-2:]
        y = attended(bb, query, keys, values, before, d.scale)
        x = bb.emit(op.add(x, self.product(y, f"{name}.attn_output", d.heads * d.head, d.width)))
        normed = self.normed(x, f"{name}.ffn_norm.weight", d.width)
        gate, up = (self.product(normed, f"{name}.ffn_{part}", d.width, d.inner) for part in ("gate", "up"))
        gated = bb.emit(op.multiply(bb.emit(op.multiply(gate, bb.emit(op.sigmoid(gate)))), up))
        return bb.emit(op.add(x, self.product(gated, f"{name}.ffn_down", d.inner, d.width)))

    def heads(self, x: relax.Expr, name: str, count: int) -> relax.Expr:
        """Return [batch, length, count, head]."""
        d = self.d
        return reshaped(
            self.bb, self.product(x, name, d.width, count * d.head), [self.batch, self.length, count, d.head]
        )

    def normed(self, x: relax.Expr, name: str, width: int) -> relax.Expr:
        """Return the RMS normalisation of x, scaled by its gain."""
        self.called(name)
        bb, gain = self.bb, relax.const(self.model.floats(name, (width,)))
        square = bb.emit(op.mean(bb.emit(op.multiply(x, x)), [-1], keepdims=True))
        inverse = bb.emit(op.rsqrt(bb.emit(op.add(square, relax.const(self.d.epsilon, "float32")))))
        return bb.emit(op.multiply(bb.emit(op.multiply(x, inverse)), gain))

    def words(self) -> relax.Expr:
        """Return the embeddings of input_ids, [batch, length, width]."""
        self.called("token_embd.weight")
        d, bb, ids = self.d, self.bb, self.inputs["input_ids"]
        table = self.model.take("token_embd.weight", (d.words, d.width))
        if table.type.encoding is None:
            held = relax.const(tensor_of(self.model.floats(table.name, table.shape)))
            return bb.emit(op.take(held, ids, axis=0))
        weights, product = self.stored(table, table.type.encoding)
        return rows_of_blocks(bb, weights, ids, product, "take", wraps=False)

    def stored(self, tensor: Tensor, encoding: Encoding) -> tuple[relax.Expr, BlockedProduct]:
        """Return a block-quantised tensor as weights, shared by everything that reads it, and their matrix
        multiplication."""
        if tensor.name not in self.weights:
            product = BlockedProduct(rows=1, n=tensor.shape[0], k=tensor.shape[1], encoding=encoding)
            held = relax.const(bytes_in_place(self.model.file.part(tensor)))
            self.weights[tensor.name] = stored(self.bb, tensor.type.name, [held], product), product
        return self.weights[tensor.name]

    def product(self, x: relax.Expr, name: str, k: int, n: int) -> relax.Expr:
        """Return x w' plus the bias, if the file has one."""
        self.called(f"{name}.weight")
        bb, found = self.bb, self.model.take(f"{name}.weight", (n, k))
        encoding = found.type.encoding
        if encoding is None:
            held = relax.const(tensor_of(self.model.floats(found.name, found.shape)))
            y = bb.emit(op.matmul(x, bb.emit(op.permute_dims(held))))
        else:
            y = product_in_blocks(bb, x, *self.stored(found, encoding), "int16")
        if self.model.has(f"{name}.bias") and name != "token_embd":
            y = bb.emit(op.add(y, relax.const(self.model.floats(f"{name}.bias", (n,)))))
        return y
