"""Recursive descent parser from Relay's text form to the tree of tree.py.

A name may contain dots: the longest declared prefix of `%net.2.weight.0` is the name, the rest are tuple projections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ModelFormatError, UnsupportedOperator
from .cursor import MAX_DEPTH, Cursor, Meta
from .lexer import Words, split
from .scalars import scalar
from .tree import (
    Call,
    Constant,
    Expr,
    Function,
    Get,
    GlobalRef,
    If,
    MakeTuple,
    Missing,
    Module,
    Release,
    TensorType,
    Var,
)

_METADATA = re.compile(r"^(?:#\[metadata\]|METADATA:)\s*", re.MULTILINE)
_SKIPPED_ATTRS = ("result_virtual_device", "virtual_device")


def divide_metadata(text: str) -> tuple[str, str]:
    """The program and the JSON of its metadata, "" if it has none."""
    found = _METADATA.search(text)
    return (text, "") if found is None else (text[: found.start()], text[found.end() :])


def parse_program(text: str, meta: Meta, release: Release) -> Module:
    """The functions of a program without its metadata. ModelFormatError names the line of the error."""
    try:
        return _Parser(split(text), meta).module(release)
    except RecursionError:
        raise ModelFormatError("expressions are nested too deeply to be read") from None


class _Parser(Cursor):
    def __init__(self, words: Words, meta: Meta) -> None:
        super().__init__(words, meta)
        self.scopes: list[dict[str, Expr]] = [{}]
        self.free: list[Var] = []
        self.being_defined: list[str] = []
        self.depth = 0

    # Declarations.

    def module(self, release: Release) -> Module:
        functions: dict[str, Function] = {}
        while self.kinds[self.at] != "end":
            if self.sees("type", "extern"):
                self.skip_type_definition()
            elif self.take("def"):
                line = self.line()
                name = self.word("global", "the name of a function, such as @main")[1:]
                if name in functions:
                    raise ModelFormatError(f"line {line}: @{name} is defined twice; expected one definition")
                functions[name] = self.function(line)
                self.take(";")
            elif functions:
                raise self.fail("def, or the end of the text")
            else:
                functions["main"] = self.bare(self.line())
        if not functions:
            raise ModelFormatError("the text contains no function; expected the output of mod.astext()")
        return Module(functions, release, "line", tuple(self.free))

    def bare(self, line: int) -> Function:
        """A text that is a single expression: a function, or an expression of free variables."""
        body = self.block("end")
        if isinstance(body, Function) and not self.free:
            return body
        return Function(line, None, tuple(self.free), body, {})

    def skip_type_definition(self) -> None:
        self.at += 1
        opened = 0
        while self.kinds[self.at] != "end":
            if self.sees("{", "[", "("):
                opened += 1
            elif self.sees("}", "]", ")"):
                opened -= 1
            elif self.sees("def") and not opened:
                return
            self.at += 1

    def function(self, line: int) -> Function:
        """Parse a function, starting at its type parameters or parameters."""
        if self.take("["):
            while not self.take("]"):
                self.word("word", "the name of a type")
                self.take(",")
        self.need("(")
        scope: dict[str, Expr] = {}
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        while not self.take(")"):
            if self.kinds[self.at] == "var":
                variable = self.declaration()
                if variable.name in scope:
                    raise ModelFormatError(
                        f"line {variable.place}: %{variable.name} is declared twice as a parameter; expected "
                        "distinct names"
                    )
                scope[variable.name] = variable
                params.append(variable)
            elif self.kinds[self.at] in ("word", "string"):
                name = self.texts[self.at].strip('"')
                self.at += 1
                self.need("=")
                attrs[name] = self.attribute(0)
            else:
                raise self.fail("a parameter, or an attribute of the function")
            self.comma(")")
        if self.take("->"):
            self.written_type()
            self.stated()
        self.need("{")
        self.enter()
        self.scopes.append(scope)
        body = self.block("}")
        self.scopes.pop()
        self.depth -= 1
        return Function(line, None, tuple(params), body, attrs)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ModelFormatError(f"line {self.line()}: expressions are nested more than {MAX_DEPTH} deep")

    def declaration(self) -> Var:
        """A variable with its type, as declared by a parameter or `let`."""
        line = self.line()
        name = self.word("var", "a variable, as %x")[1:]
        if self.take("{"):
            while not self.take("}"):
                self.at += 1
                if self.kinds[self.at] == "end":
                    raise self.fail("'}'")
        annotated = self.written_type() if self.take(":") else None
        stated = self.stated()
        return Var(line, annotated or stated, name)

    # Expressions.

    def block(self, closing: str) -> Expr:
        """Statements and the following expression, up to `closing`."""
        self.scopes.append({})
        while True:
            if self.take("free_var"):
                variable = self.declaration()
                self.free.append(variable)
                self.scopes[0][variable.name] = variable
                self.take(";")
            elif self.take("let"):
                self.binding(self.declaration().name)
            elif self.kinds[self.at] == "var" and self.texts[self.at + 1] == "=":
                self.binding(self.word("var", "a variable")[1:])
            else:
                break
        result = self.expression()
        self.take(";")
        if closing == "end" and self.kinds[self.at] != "end":
            raise self.fail("the end of the text")
        if closing != "end":
            self.need(closing)
        self.scopes.pop()
        return result

    def binding(self, name: str) -> None:
        self.need("=")
        self.being_defined.append(name)
        value = self.expression()
        self.being_defined.pop()
        self.need(";")
        self.scopes[-1][name] = value

    def expression(self) -> Expr:
        self.enter()
        expr = self.atom()
        while True:
            line = self.line()
            if self.sees("("):
                self.at += 1
                args, attrs = self.arguments("")
                expr = Call(line, self.stated(), expr, args, attrs, self.node)
            elif self.kinds[self.at] == "get":
                index = int(self.word("get", "a field")[1:])
                expr = Get(line, self.stated(), expr, index)
            else:
                break
        self.depth -= 1
        return expr

    def atom(self) -> Expr:
        line, kind, text = self.line(), self.kinds[self.at], self.texts[self.at]
        if kind == "var":
            self.at += 1
            expr = self.variable(text[1:], line)
            if isinstance(expr, Get) and self.kinds[self.at] == "type":
                return Get(line, self.stated(), expr.value, expr.index)
            self.stated()
            return expr
        if kind == "global":
            self.at += 1
            self.stated()
            return GlobalRef(line, None, text[1:])
        if kind == "number" or text in ("True", "False"):
            self.at += 1
            return scalar(text, self.stated(), line)
        if kind == "word":
            return self.named(text, line)
        if self.take("("):
            return self.parentheses(line)
        raise self.fail("an expression")

    def named(self, text: str, line: int) -> Expr:
        """An expression that starts with a word: a function, `if`, a metadata reference or an operator call."""
        self.at += 1
        if text == "fn":
            function = self.function(line)
            self.stated()
            return function
        if text == "if":
            return self.branches(line)
        if text == "meta":
            return self.meta_constant(line)
        if text in ("match", "match?"):
            raise UnsupportedOperator(f"line {line}: match on algebraic data types is not supported; expected tensors")
        if not self.take("("):
            raise self.fail(f"'(' and the operands of {text}")
        args, attrs = self.arguments(text)
        return Call(line, self.stated(), text, args, attrs, self.node)

    def branches(self, line: int) -> Expr:
        self.need("(")
        condition = self.expression()
        self.need(")")
        self.need("{")
        then = self.block("}")
        if not self.take("else"):
            raise self.fail("else")
        self.need("{")
        other = self.block("}")
        return If(line, self.stated(), condition, then, other)

    def parentheses(self, line: int) -> Expr:
        """A tuple, or one expression in parentheses."""
        fields: list[Expr] = []
        comma = False
        while not self.take(")"):
            fields.append(self.expression())
            comma = self.sees(",")
            self.comma(")")
        stated = self.stated()
        if len(fields) == 1 and not comma:
            return fields[0]
        return MakeTuple(line, stated, tuple(fields))

    def variable(self, name: str, line: int) -> Expr:
        """The expression bound to a name, with projections if only a prefix of the name is declared."""
        declared, fields = name, []
        while (found := self.lookup(declared)) is None:
            declared, dot, last = declared.rpartition(".")
            if not dot or not last.isdigit():
                why = " yet: recursion is not supported" if name in self.being_defined else ""
                raise ModelFormatError(f"line {line}: %{name} is not declared{why}; expected names declared before")
            fields.append(int(last))
        for index in reversed(fields):
            found = Get(line, None, found, index)
        return found

    def lookup(self, name: str) -> Expr | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def arguments(self, op: str) -> tuple[tuple[Expr, ...], Mapping[str, Any]]:
        """Operands and attributes of operator `op` up to the closing parenthesis."""
        args: list[Expr] = []
        attrs: dict[str, Any] = {}
        while not self.take(")"):
            if self.kinds[self.at] == "word" and self.texts[self.at + 1] == "=" and self.kinds[self.at + 1] == "mark":
                name = self.texts[self.at]
                self.at += 2
                attrs[name] = self.attribute(0)
            elif self.sees("meta") and not self.is_constant():
                attrs.update(self.meta_attributes(op))
            else:
                args.append(self.expression())
            self.comma(")")
        return tuple(args), {name: value for name, value in attrs.items() if name not in _SKIPPED_ATTRS}

    # Metadata.

    def is_constant(self) -> bool:
        return self.texts[self.at + 2].endswith("Constant")

    def meta_attributes(self, op: str) -> dict[str, Any]:
        """Attributes of operator `op` that old releases stored in the metadata as a whole."""
        line = self.line()
        found = self.meta(*self.reference(), op)
        if not isinstance(found, dict):
            raise ModelFormatError(f"line {line}: the metadata with the attributes of this operator is missing")
        return found

    def meta_constant(self, line: int) -> Expr:
        self.at -= 1
        kind, number = self.reference()
        stated = self.stated()
        value = self.meta(kind, number)
        if value is None:
            return Missing(line, stated, f"meta[{kind}][{number}]")
        if not isinstance(value, np.ndarray):
            raise ModelFormatError(f"line {line}: meta[{kind}][{number}] is not a constant; expected relay.Constant")
        return Constant(line, stated or TensorType(value.shape, value.dtype.name), value)
