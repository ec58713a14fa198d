"""Counts which nodes of the intermediate form and which functions met which dtypes, as kernels are written."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vispark.translate.codegen import dispatch
from vispark.translate.ir import nodes as form
from vispark.translate.ir.values import Array, Dict, List, Method, Number, Tuple, Value

#: A node's or a function's name, and a dtype.
OperatorPair = tuple[str, str]
#: Operators that are words.
_WORDS = ("and", "or", "in", "not in", "is", "is not", "chained comparison")


class MeetingCounter:
    """Counter of what is met after :meth:`clear`.

    A node counts for its own dtype and its operands', and so do its operator and the function that it calls. One that
    has no dtype at all, as a literal, counts for those of the node it stands in; its operator does not.
    """

    def __init__(self) -> None:
        self.pairs: set[OperatorPair] = set()
        self.dtypes: tuple[str, ...] = ()
        self._operands: list[set[str]] = []
        self._inside: list[set[str]] = []

    def clear(self, dtypes: tuple[str, ...]) -> None:
        """Start on a function whose elements have these dtypes, which its statements count for."""
        self.pairs, self.dtypes, self._operands, self._inside = set(), dtypes, [], []

    def expression(self, node: form.Expression, write: Callable[[], Value]) -> Value:
        """Count an expression, while it is written."""
        self._operands.append(set())
        self._inside.append(set())
        try:
            value = write()
        finally:
            operands, inside = self._operands.pop(), self._inside.pop()
        own, kind = set(_dtypes(value)), {type(node).__name__}
        self.pairs.update((name, dtype) for name in kind | inside | {*_names(node, value)} for dtype in operands | own)
        if self._operands:
            self._operands[-1] |= own
            if not operands | own:
                self._inside[-1] |= kind | inside
        return value

    def statement(self, name: str) -> None:
        """Count a statement, for the dtypes of the function's elements."""
        self.pairs.update((name, dtype) for dtype in self.dtypes)


def _names(node: form.Expression, value: Value) -> Iterator[str]:
    """Yield the particulars of a node: its operator, the function that it calls, the words that it is written with."""
    if isinstance(node, form.Unary):
        yield f"unary {node.operator}"
    elif isinstance(node, form.Binary | form.Logical):
        yield node.operator
    elif isinstance(node, form.Compare):
        yield from node.operators
        if len(node.operators) > 1:
            yield "chained comparison"
    elif isinstance(node, form.Call):
        if isinstance(node.function, form.Library):
            yield node.function.name
        elif isinstance(node.function, form.Attribute):
            yield f".{node.function.name}()"
        if any(isinstance(argument, form.Each) for argument in node.arguments):
            yield "Each"
        if any(isinstance(argument, form.Spread) for argument in node.arguments):
            yield "Spread"
    elif isinstance(node, form.Attribute) and not isinstance(value, Method):
        yield f".{node.name}"
    elif isinstance(node, form.Index) and any(isinstance(index, form.Slice) for index in node.indices):
        yield "Slice"


def _dtypes(value: Any) -> Iterator[str]:
    if isinstance(value, Number | Array):
        if not value.type.weak:
            yield value.type.dtype
    elif isinstance(value, Tuple | List | Dict):
        for item in value.items:
            yield from _dtypes(item)
    elif isinstance(value, Method):
        yield from _dtypes(value.value)


@contextmanager
def recording() -> Iterator[MeetingCounter]:
    """Count while it lasts."""
    recorder = MeetingCounter()
    kept = dict(dispatch._LOWERINGS)
    for kind, lowering in kept.items():
        dispatch._LOWERINGS[kind] = _counted(recorder, kind, lowering)
    try:
        yield recorder
    finally:
        dispatch._LOWERINGS.update(kept)


def _counted(recorder: MeetingCounter, kind: type[form.Node], lowering: Callable[..., Any]) -> Callable[..., Any]:
    if issubclass(kind, form.Expression):
        return lambda emit, node: recorder.expression(node, lambda: lowering(emit, node))

    def write(emit: Any, statement: form.Statement, *rest: Any) -> Any:
        recorder.statement(kind.__name__)
        return lowering(emit, statement, *rest)
    return write


@functools.cache
def nodes() -> tuple[str, ...]:
    """Return the names of all nodes of the form."""
    return tuple(name for name, kind in vars(form).items() if isinstance(kind, type) and issubclass(kind, form.Node)
                 and kind not in (form.Node, form.Expression, form.Statement))


def is_syntax(name: str) -> bool:
    """Return whether a name is that of a node or an operator, and not of a function or an attribute."""
    return name in nodes() or name in _WORDS or name.startswith("unary ") or not re.match(r"[.\w]", name)
