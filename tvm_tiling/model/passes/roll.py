"""Rolling of unrolled cells back into one recurrent layer: one matrix multiplication for the inputs of all steps, and
one recurrence, which is one kernel.

The state of each step is a slice of the layer's output. The function is rebuilt from its results backwards, so unused
values, such as the cells themselves, are dropped; an input of a step may be computed anywhere, but not from a state of
its own chain. A cell's c is available only after the last step: where the graph uses an intermediate one, the chain is
split there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ...decide.rnn.recurrence import GATES, Recurrence
from ...frontend.node_names import NamingBuilder, joined
from ...frontend.recurrent_layer import recurrence_call
from .cells import Graph, Part, Product
from .chains import Step, chains
from .dataflow import RENEWED, Expr, constant, is_op, renewed, replace_operands, shape_of
from .simplify import folded


def roll_cells(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with every chain of equal cells in its function "main" as one recurrence."""
    func = mod["main"]
    if not isinstance(func.body, relax.SeqExpr) or not _straight(func):
        return mod
    graph = Graph(func)
    found = chains(graph)
    return _Rolled(mod, graph, found).module() if found else mod


def _straight(func: relax.Function) -> bool:
    """Return whether only side-effect free operators are called, so that their order may change."""
    values = [binding for block in func.body.blocks for binding in block.bindings]
    plain = all(isinstance(b, relax.VarBinding) and not isinstance(b.value, relax.If | relax.Function) for b in values)
    return plain and all(isinstance(block, relax.DataflowBlock) for block in func.body.blocks)


@dataclass(frozen=True)
class _Sequence:
    """A tensor of (rows x columns) for each step: indices first, first + 1, .. of an axis of `source`, a tensor or the
    output of a chain, in reverse order if `backwards`; or `steps`, separate tensors, which are stacked."""

    steps: tuple[Expr, ...]
    source: Expr | _Chain | None = None
    axis: int = 0
    first: int = 0
    backwards: bool = False


class _Chain:
    """A chain that is being rolled, and the bindings that it replaces."""

    def __init__(self, graph: Graph, steps: Sequence[Step], places: Mapping[Expr, tuple[_Chain, int]]) -> None:
        self.graph, self.steps, self.states = graph, list(steps), places
        first = self.steps[0]
        self.rows = prod((shape_of(first.before.tensor) or ())[:-1])
        self.hidden = first.before.end
        self.cell = first.cell.kind
        self.sources = [
            self._sequence([step.sources[number].tensor for step in self.steps]) for number in range(len(first.sources))
        ]
        self.others = [
            [
                (self._sequence([step.inputs[gate].others[number].tensor for step in self.steps]), part)
                for number, part in enumerate(first.inputs[gate].others)
            ]
            for gate in GATES[self.cell]
        ]
        every = [*self.sources, *(sequence for gate in self.others for sequence, _ in gate)]
        # The layer runs backwards if all its inputs do; inputs in the other direction are stacked.
        self.backwards = bool(every) and all(sequence.backwards for sequence in every)
        if not self.backwards:
            self.sources = [self._forward(sequence) for sequence in self.sources]
            self.others = [[(self._forward(s), part) for s, part in gate] for gate in self.others]

    @property
    def results(self) -> set[Expr]:
        """Variables computed by the layer."""
        last = self.steps[-1].cell
        return {step.cell.h.tensor for step in self.steps} | ({last.c.tensor} if last.c is not None else set())

    @property
    def passing(self) -> dict[Expr, int]:
        """c between the steps, which the layer does not return, and their steps."""
        return {step.cell.c.tensor: n for n, step in enumerate(self.steps[:-1]) if step.cell.c is not None}

    def needs(self) -> list[Expr]:
        """The expressions that the layer reads."""
        first = self.steps[0]
        read: list[Expr] = [first.before.tensor]
        if first.cell.c_before is not None:
            read.append(first.cell.c_before.tensor)
        for sequence in [*self.sources, *(s for gate in self.others for s, _ in gate)]:
            source = sequence.source
            read += sequence.steps if source is None or isinstance(source, _Chain) else [source]
        for gate in GATES[self.cell]:
            read += [product.weights for product in (first.state[gate], *first.inputs[gate].products)]
            read += [row.tensor for row in first.inputs[gate].rows]
        return [*read, *(row.tensor for row in first.inner)]

    def place(self, step: int) -> int:
        """The index in the output of the state after a step."""
        return len(self.steps) - 1 - step if self.backwards else step

    def _forward(self, sequence: _Sequence) -> _Sequence:
        return _Sequence(sequence.steps) if sequence.backwards else sequence

    def _sequence(self, tensors: list[Expr]) -> _Sequence:
        """The tensors as indices of an existing one, if they are."""
        plain = _Sequence(tuple(tensors))
        found = [self._element(tensor) for tensor in tensors]
        known = [place for place in found if place is not None]
        if len(known) != len(found) or len({place[:2] for place in known}) != 1:
            return plain
        source, axis, _ = known[0]
        shape = (0, self.rows, 0) if isinstance(source, _Chain) else shape_of(source) or ()
        # For (steps, rows, columns) or (rows, steps, columns), or a single sequence without an axis for rows.
        if axis > 1 or len(shape) - axis < 2 or len(shape) > 3 or prod(shape[:-1]) != self.rows * shape[axis]:
            return plain
        numbers, steps = [place for *_, place in known], len(known)
        for backwards, order in ((False, numbers), (True, numbers[::-1])):
            if order == list(range(order[0], order[0] + steps)):
                return _Sequence(plain.steps, source, axis, order[0], backwards)
        return plain

    def _element(self, tensor: Expr) -> tuple[Expr | _Chain, int, int] | None:
        """(source, axis, index) for an index of a tensor, or a state of another chain."""
        if tensor in self.states:
            chain, place = self.states[tensor]
            return chain, 0, place
        return self.graph.element(tensor)


class _Rolled:
    """The rebuilt function."""

    def __init__(self, mod: tvm.IRModule, graph: Graph, found: list[list[Step]]) -> None:
        self.mod, self.func, self.graph = mod, mod["main"], graph
        self.chains: list[_Chain] = []
        for steps in found:
            self._add(steps)
        self.renamed: dict[Expr, Expr] = {}
        self.outputs: dict[_Chain, Expr] = {}

    # ---- selection of chains ----------------------------------------------------------------------------------------

    def _add(self, steps: list[Step]) -> None:
        """Add a chain, split where c is used, unless inputs of its steps depend on its own states."""
        if len(steps) < 2:
            return
        states = {s.cell.h.tensor: (c, c.place(n)) for c in self.chains for n, s in enumerate(c.steps)}
        chain = _Chain(self.graph, steps, states)
        kept, self.chains = self.chains, [*self.chains, chain]
        order = self._order()
        if order is None:
            self.chains = kept
            return
        asked = [chain.passing[node] for node in order if node in chain.passing]
        if asked:
            self.chains = kept
            split = max(asked) + 1  # those before it may only be used by it
            self._add(steps[:split])
            self._add(steps[split:])

    def _giver(self) -> dict[Expr, _Chain]:
        return {variable: chain for chain in self.chains for variable in chain.results}

    def _order(self) -> list[Expr | _Chain] | None:
        """Variables and chains in a valid order of computation; None if a chain depends on itself."""
        giver = self._giver()
        done: dict[Expr | _Chain, bool] = {}
        order: list[Expr | _Chain] = []
        front: list[tuple[Expr | _Chain, bool]] = [(v, False) for v in relax.analysis.free_vars(self.func.body.body)]
        front.reverse()
        while front:
            node, ready = front.pop()
            node = giver.get(node, node) if isinstance(node, relax.Var) else node
            if ready:
                if not done.get(node):
                    done[node] = True
                    order.append(node)
                continue
            if node in done:
                if not done[node]:
                    return None
                continue
            done[node] = False
            front.append((node, True))
            front += [(need, False) for need in self._needs(node) if not done.get(giver.get(need, need))]
        return order

    def _needs(self, node: Expr | _Chain) -> list[Expr]:
        if isinstance(node, _Chain):
            return [v for expr in node.needs() for v in relax.analysis.free_vars(expr)]
        whole = self._whole(node)
        if whole is not None:
            return [whole[0].steps[0].cell.h.tensor]
        value = self.graph.bound.get(node)
        return [] if value is None else list(relax.analysis.free_vars(value))

    def _whole(self, variable: Expr) -> tuple[_Chain, bool, int] | None:
        """(chain, reversed, axis of steps) if a variable stacks all states of a chain."""
        value = self.graph.bound.get(variable)
        if value is None or not is_op(value, "stack", "concat") or value.attrs.axis is None:
            return None
        fields = self.graph.value(value.args[0])
        parts = [self.graph.part(field) for field in fields.fields] if isinstance(fields, relax.Tuple) else []
        for chain in self.chains:
            own = [step.cell.h for step in chain.steps]
            for backwards, order in ((False, own), (True, own[::-1])):
                if parts != order:
                    continue
                shape = shape_of(fields.fields[0]) or ()
                rank = len(shape) + (1 if is_op(value, "stack") else 0)
                before: int = prod(shape[: int(value.attrs.axis) % rank])
                if before in (1, chain.rows):
                    return chain, backwards != chain.backwards, 0 if before == 1 else 1
        return None

    # ---- the function -----------------------------------------------------------------------------------------------

    def module(self) -> tvm.IRModule:
        """The module with the rebuilt function."""
        order = self._order()
        if not self.chains or order is None:
            return self.mod
        builder = NamingBuilder(self.mod)
        attrs = dict(self.func.attrs) if self.func.attrs else None
        self.emit = builder.emit
        with builder.function(RENEWED, list(self.func.params), attrs=attrs):
            with builder.dataflow():
                for node in order:
                    self._write(builder, node)
                output = builder.emit_output(replace_operands(self.func.body.body, self.renamed))
            builder.emit_func_output(output)
        return renewed(self.mod, builder)

    def _write(self, builder: NamingBuilder, node: Expr | _Chain) -> None:
        if isinstance(node, _Chain):
            builder.called = self._name(node)
            self._layer(builder, node)
            return
        builder.called = joined(node.name)
        value = self.graph.bound.get(node)
        if value is None:
            return  # a parameter
        whole = self._whole(node)
        if whole is not None:
            chain, turned, axis = whole
            states = self.outputs[chain]
            if turned:
                states = self.emit(op.flip(states, 0))
            if axis == 1:
                states = self.emit(op.permute_dims(states, [1, 0, 2]))
            self.renamed[node] = self._shaped(states, shape_of(node) or ())
            return
        value = replace_operands(value, self.renamed)
        plain = isinstance(value, relax.Var | tvm.ir.GenericConst)
        self.renamed[node] = value if plain else self.emit(value)

    def _name(self, chain: _Chain) -> str:
        """The name of the layer's variables: the nodes of everything computed between its inputs and its outputs."""
        ends = {v for expr in chain.needs() for v in relax.analysis.free_vars(expr)} | set(chain.states)
        replaced: set[Expr] = set()
        front = [step.cell.h.tensor for step in chain.steps]
        while front:
            variable = front.pop()
            if variable not in replaced and variable not in ends and variable in self.graph.bound:
                replaced.add(variable)
                front.extend(relax.analysis.free_vars(self.graph.bound[variable]))
        return joined(*(binding.var.name for binding in self.graph.bindings if binding.var in replaced))

    def _layer(self, builder: relax.BlockBuilder, chain: _Chain) -> None:
        """The chain as one layer; its states have the names of the cells'."""
        first, last = chain.steps[0], chain.steps[-1]
        gates, steps, shape = GATES[chain.cell], len(chain.steps), (chain.rows, chain.hidden)
        recurrence = Recurrence(
            cell=chain.cell,
            steps=steps,
            batch=chain.rows,
            hidden=chain.hidden,
            order=gates,
            reverse=chain.backwards,
            reset_after=first.cell.inner is not None,
            activation=first.cell.activation,
        )
        starts = [first.before, *([] if first.cell.c_before is None else [first.cell.c_before])]
        states = [self._shaped(self._columns(self._now(start.tensor), start), shape) for start in starts]
        bias = self._total([self._row(row) for row in first.inner])
        y, *final = recurrence_call(
            builder,
            recurrence,
            self._projected(chain),
            self._joined([self._weights(first.state[gate]) for gate in gates]),
            states,
            bias=bias,
        )
        self.outputs[chain] = y
        for number, step in enumerate(chain.steps):
            variable = step.cell.h.tensor
            place = chain.place(number)
            value = final[0] if step is last else self.emit(op.strided_slice(y, [0], [place], [place + 1]))
            self.renamed[variable] = self._shaped(value, shape_of(variable) or ())
        if last.cell.c is not None:
            self.renamed[last.cell.c.tensor] = self._shaped(final[1], shape_of(last.cell.c.tensor) or ())

    def _projected(self, chain: _Chain) -> Expr:
        """The input part of all gates' sums in all steps: steps x rows x (gates * hidden)."""
        first, gates = chain.steps[0], GATES[chain.cell]
        addends: list[Expr] = []
        if chain.sources:
            x = self._joined([self._steps(chain, sequence) for sequence in chain.sources], 2)
            weights = []
            for gate in gates:
                parts = [self._weights(product) for product in first.inputs[gate].products]
                weights.append(self._joined(parts, 1))
            addends.append(self.emit(op.matmul(x, self._known(op.permute_dims(self._joined(weights))))))
        for number in range(len(first.inputs[gates[0]].others)):
            parts = [self._columns(self._steps(chain, gate[number][0]), gate[number][1]) for gate in chain.others]
            beside = self._beside(chain, number)
            addends.append(self._joined(parts, 2) if beside is None else beside)
        rows = [self._total([self._row(row) for row in first.inputs[gate].rows]) for gate in gates]
        if any(row is not None for row in rows):
            zeros = constant(np.zeros(chain.hidden, np.float32))
            addends.append(self._joined([zeros if row is None else row for row in rows]))
        total = addends[0]
        for addend in addends[1:]:
            total = self.emit(op.add(total, addend))
        return total

    def _beside(self, chain: _Chain, number: int) -> Expr | None:
        """The tensor with the other terms of all gates concatenated in their order; None if there is none."""
        parts = [gate[number] for gate in chain.others]
        (sequence, part), hidden = parts[0], chain.hidden
        spans = [(p.start, p.end) for _, p in parts]
        lie = spans == [(n * hidden, (n + 1) * hidden) for n in range(len(parts))]
        same = all(s == sequence for s, _ in parts) and (shape_of(part.tensor) or (0,))[-1] == spans[-1][1]
        return self._steps(chain, sequence) if lie and same else None

    # ---- expressions ------------------------------------------------------------------------------------------------

    def _now(self, expr: Expr) -> Expr:
        """An expression of the old function in the new one."""
        return replace_operands(expr, self.renamed)

    def _known(self, call: relax.Call) -> Expr:
        """The result of a call, evaluated immediately if its operands are constant."""
        normal = relax.BlockBuilder().normalize(call) if not relax.analysis.free_vars(call) else None
        value = folded(normal) if isinstance(normal, relax.Call) else None
        return self.emit(call) if value is None else value

    def _constant(self, expr: Expr) -> Expr:
        """A weight with transpositions and slices evaluated, if it is a constant below them."""
        value = self.graph.value(expr)
        if isinstance(value, relax.Call) and not isinstance(value, relax.Var) and value is not expr:
            operands = [self._constant(a) if isinstance(a, relax.Var) else a for a in value.args]
            if all(not isinstance(a, relax.Var) for a in operands):
                return self._known(relax.Call(value.op, operands, value.attrs, value.ty_args))
        return self._now(expr)

    def _weights(self, product: Product) -> Expr:
        """The columns of a matrix multiplication's weights, transposed: units x columns of its source."""
        weights = self._constant(product.weights)
        begin, end = (product.first, product.start), (product.first + product.columns, product.end)
        if (begin, end) != ((0, 0), shape_of(weights)):
            weights = self._known(op.strided_slice(weights, [0, 1], begin, end))
        return self._known(op.permute_dims(weights))

    def _row(self, row: Part) -> Expr:
        value = self._shaped(self._constant(row.tensor), ((shape_of(row.tensor) or (0,))[-1],))
        return self._columns(value, row)

    def _total(self, rows: list[Expr]) -> Expr | None:
        if not rows:
            return None
        total = rows[0]
        for row in rows[1:]:
            total = self._known(op.add(total, row))
        return total

    def _columns(self, expr: Expr, part: Part) -> Expr:
        """The part's columns of the last axis."""
        if part.whole:
            return expr
        axis = len(shape_of(expr) or ()) - 1
        return self._known(op.strided_slice(expr, [axis], [part.start], [part.end]))

    def _joined(self, parts: Sequence[Expr], axis: int = 0) -> Expr:
        return parts[0] if len(parts) == 1 else self._known(op.concat(list(parts), axis))

    def _shaped(self, expr: Expr, shape: Sequence[int]) -> Expr:
        return expr if shape_of(expr) == tuple(shape) else self._known(op.reshape(expr, tuple(shape)))

    def _steps(self, chain: _Chain, sequence: _Sequence) -> Expr:
        """A sequence as steps x rows x columns."""
        steps = len(chain.steps)
        if sequence.source is None:
            columns = (shape_of(sequence.steps[0]) or (0,))[-1]
            each = [self._shaped(self._now(step), (1, chain.rows, columns)) for step in sequence.steps]
            return self._joined(each)
        known, axis = sequence.source, sequence.axis
        source = self.outputs[known] if isinstance(known, _Chain) else self._now(known)
        shape = shape_of(source) or ()
        if (sequence.first, steps) != (0, shape[axis]):
            source = self.emit(op.strided_slice(source, [axis], [sequence.first], [sequence.first + steps]))
        if axis == 1 and shape[0] > 1:
            source = self.emit(op.permute_dims(source, [1, 0, 2]))
        return self._shaped(source, (steps, chain.rows, shape[-1]))
