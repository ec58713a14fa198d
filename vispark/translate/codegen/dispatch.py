"""Lowering of the form's nodes: each kind of expression and statement has one function, registered here.

:func:`lowers_node` registers them, :func:`expression` and :func:`statements` call them. A call is lowered as it is
written (:func:`lowers_call`) where its arguments are more than values: generators, ranges, written-out subscripts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.operands import as_number
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.liveness import NONE, NameSet
from vispark.translate.ir.source_text import complain
from vispark.translate.ir.values import Number, Value

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_LOWERINGS: dict[type[nodes.Node], Callable[..., Any]] = {}
_CALLS: dict[str, Callable[[Emitter, str, nodes.Call], Value | None]] = {}


def lowers_node(kind: type[nodes.Node]) -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function as the lowering of a kind of node.

    That of an expression takes the emitter and the node, and returns a value. That of a statement also takes the names
    that may be read after it, and returns whether what follows it is reached.

    Raises
    ------
    ValueError
        If the kind has a lowering already.
    """
    def add(lowering: _Decorated) -> _Decorated:
        if kind in _LOWERINGS:
            raise ValueError(f"{kind.__name__} is lowered twice, by {_LOWERINGS[kind].__qualname__} and by "
                             f"{lowering.__qualname__}")
        _LOWERINGS[kind] = lowering
        return lowering
    return add


def lowers_call(*names: str) -> Callable[[_Decorated], _Decorated]:
    """Register the decorated function as the lowering of calls of library functions, as they are written.

    It takes the emitter, the function's name and the call; None leaves the call to the lowering of its values.

    Raises
    ------
    ValueError
        If calls of a name have one already.
    """
    def add(lowering: _Decorated) -> _Decorated:
        for name in names:
            if name in _CALLS:
                raise ValueError(f"calls of {name} are lowered twice, by {_CALLS[name].__qualname__} and by "
                                 f"{lowering.__qualname__}")
            _CALLS[name] = lowering
        return lowering
    return add


def expression(emit: Emitter, node: nodes.Expression) -> Any:
    """Return the value of an expression, whose lines are written; an error is reported at the expression's place."""
    kind = type(node)
    lowering = emit.lowerings.get(kind) or _LOWERINGS[kind]
    try:
        return lowering(emit, node)
    except Refusal as error:
        raise complain(str(error), node.at, emit.frame.definition.text, emit.frame.definition.name) from error


def number_of(emit: Emitter, node: nodes.Expression, what: str = "a number") -> Number:
    """Return the value of an expression that must be a number."""
    value = expression(emit, node)
    with errors_at(emit, node):
        return as_number(value, what)


def call_as_written(emit: Emitter, name: str, node: nodes.Call) -> Value | None:
    """Return the value of a call that is lowered as it is written; None of other calls."""
    lowering = _CALLS.get(name)
    return None if lowering is None else lowering(emit, name, node)


def statements(emit: Emitter, block: nodes.Statements, after: NameSet) -> bool:
    """Write a block; return whether what follows it is reached. ``after`` are the names that may be read then."""
    loops = emit.frame.loops
    head, ends = (loops[-1].head, loops[-1].after) if loops else (NONE, NONE)
    for number, statement in enumerate(block):
        later = liveness.live(block[number + 1:], after, ends, head)
        with errors_at(emit, statement):
            goes_on = _LOWERINGS[type(statement)](emit, statement, later)
        if not goes_on:
            return False
    return True


@contextlib.contextmanager
def errors_at(emit: Emitter, node: nodes.Node) -> Iterator[None]:
    """Turn a refusal into an error at a node."""
    try:
        yield
    except Refusal as error:
        definition = emit.frame.definition
        raise complain(str(error), node.at, definition.text, definition.name) from error
