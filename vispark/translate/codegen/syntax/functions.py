"""Calls with values: functions of the user's, written in place with their ``return``, methods, library functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vispark.translate import language
from vispark.translate.codegen.dispatch import errors_at, expression, lowers_node, statements
from vispark.translate.codegen.emitter import Emitter
from vispark.translate.codegen.frame import CallFrame, Returns
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.scalar.casts import literal
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.codegen.syntax.operators import settled
from vispark.translate.frontend.checks import LIST_RETURNED
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal, TranslationError
from vispark.translate.ir.liveness import NONE, NameSet
from vispark.translate.ir.values import (
    Array,
    DictType,
    List,
    ListType,
    LocalFunction,
    Method,
    Named,
    NamedTupleType,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    describe,
    join_types,
    shown,
    type_of,
)
from vispark.translate.language import registry

#: Where functions are written that the translator reads in place of a library's.
_LANGUAGE = str(Path(language.__file__).parent)
_DEEPEST = 40


def call(emit: Emitter, function: Value, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
    """Return a call with values."""
    if isinstance(function, LocalFunction):
        return inlined(emit, function, arguments, keywords)
    if isinstance(function, Method):
        return method(emit, function, arguments, keywords)
    if type(function) is not Named:
        raise Refusal(f"{describe(function)} cannot be called")
    return call_library(emit, function.name, arguments, keywords)


def method(emit: Emitter, function: Method, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
    """Return ``value.name(...)``."""
    value: Any = function.value
    if isinstance(value, Array | Number) and function.name in ("conj", "conjugate") and value.type.kind != "c" \
            and not arguments:
        return value
    return call_library(emit, registry.methods()[function.name], (function.value, *arguments), keywords)


def inlined(emit: Emitter, function: LocalFunction, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
    """Return a call: the function's body in a frame of its own."""
    definition = function.definition
    if emit.frame.depth >= _DEEPEST:
        raise Refusal(f"{definition.name} calls itself, or calls are nested more than {_DEEPEST} deep: recursion is"
                      " not supported; write a loop")
    return called(emit, definition, _bound(emit, function, arguments, keywords), function.frame)


def called(emit: Emitter, definition: nodes.Definition, variables: dict[str, Value], outer: CallFrame | None) -> Value:
    """Return the value of a call whose parameters have their values."""
    body = definition.body
    if liveness.returns(body) <= 1 and liveness.returns_last(body) and liveness.leaves(body):
        results: list[Value] = []
        run(emit, definition, variables, outer, Returns(results.append))
        return results[0]
    kind = result_type(emit, definition, variables, outer)
    target = emit.variable(kind, f"{definition.name}_result")
    run(emit, definition, variables, outer, Returns(lambda value: emit.assign(target, value)))
    return settled(target)


def result_type(emit: Emitter, definition: nodes.Definition, variables: dict[str, Value],
                outer: CallFrame | None) -> Any:
    """Return the type that all ``return`` statements of a call have together; None where they give functions."""
    taken, scratch = set(emit.taken), emit.scratch
    with emit.detached():
        returns = run(emit, definition, variables, outer, Returns(lambda value: None))
    emit.taken, emit.scratch = taken, scratch
    return returns.seen


def run(emit: Emitter, definition: nodes.Definition, variables: dict[str, Value], outer: CallFrame | None,
        returns: Returns) -> Returns:
    """Write a function's body."""
    before, body = emit.frame, definition.body
    emit.frame = CallFrame(definition, dict(variables), liveness.mutated(body), liveness.uses(body), outer, returns,
                           depth=before.depth + 1)
    returns.jumps = not liveness.returns_last(body)
    try:
        if returns.jumps:
            with emit.block("[&]", "}();"):
                _body(emit, definition)
        else:
            _body(emit, definition)
    except TranslationError as error:
        if not isinstance(error.__cause__, Refusal) or not error.file.startswith(_LANGUAGE):
            raise
        # In a function that stands for one of NumPy's: the error is told of where that is called.
        emit.frame = before
        raise error.__cause__ from None
    emit.frame = before
    return returns


def _body(emit: Emitter, definition: nodes.Definition) -> None:
    if statements(emit, definition.body, NONE):
        here = nodes.Return(nodes.Literal(None), at=definition.at)
        with errors_at(emit, here):
            _give(emit, Nothing())


@lowers_node(nodes.Return)
def lower_return(emit: Emitter, statement: nodes.Return, after: NameSet) -> bool:
    """Write ``return``."""
    value = expression(emit, statement.value)
    if isinstance(statement.value, nodes.Local) and isinstance(value, Array):
        # The function's own name for it ends here.
        value = emit.frame.variables.get(statement.value.name, value)
    _give(emit, value)
    return False


def _give(emit: Emitter, value: Value) -> None:
    returns, kind = emit.frame.returns, type_of(value) if not isinstance(value, LocalFunction) else None
    assert returns is not None
    if kind is not None and emit.frame.depth == 1:
        _check_result(kind)
    returns.tests += emit.tests
    if kind is None:
        returns.keep(value)
        return
    if isinstance(kind, Nothing) != isinstance(returns.seen or kind, Nothing):
        raise Refusal(f"{emit.frame.definition.name} returns a value on some ways and none on others; return one"
                      " on each")
    try:
        returns.seen = kind if returns.seen is None else join_types(returns.seen, kind)
    except Refusal as error:
        test = next((test for test in returns.tests if test.sources or test.numpy_int), literal(False))
        raise NeedsStatic.of(test, f"{emit.frame.definition.name} returns {shown(returns.seen or kind)} on one way and "
                                   f"{shown(kind)} on another; return one type") from error
    returns.keep(value)
    if returns.jumps:
        emit.line("return;")


def _check_result(kind: Type) -> None:
    """Check the type of a function's result: a number, an array, or a tuple or a dict of these.

    Raises
    ------
    Refusal
        Where it has a list or a named tuple in it, which would come back as something else.
    """
    if isinstance(kind, ListType):
        raise Refusal(LIST_RETURNED)
    if isinstance(kind, NamedTupleType):
        raise Refusal(f"{shown(kind)} would come back as a plain tuple; write tuple(...) of it, or a dict of fields")
    for item in kind if isinstance(kind, tuple) else kind.items if isinstance(kind, DictType) else ():
        _check_result(item)


def _bound(emit: Emitter, function: LocalFunction, arguments: tuple[Value, ...],
           keywords: dict[str, Value]) -> dict[str, Value]:
    """Return the parameters' values in a call."""
    definition = function.definition
    positional = [parameter.name for parameter in definition.parameters if not parameter.keyword_only]
    many = [parameter.name for parameter in definition.parameters if parameter.many]
    if len(arguments) > len(positional) and not many:
        raise Refusal(f"{definition.name} takes {len(positional)} arguments, and {len(arguments)} are given")
    bound = dict(zip(positional, arguments, strict=False)) | {name: Tuple(arguments[len(positional):]) for name in many}
    for name, value in keywords.items():
        if name in bound or name not in {parameter.name for parameter in definition.parameters}:
            raise Refusal(f"{definition.name} has no parameter {name}" if name not in bound else
                          f"{definition.name} is given {name} twice")
        bound[name] = value
    for parameter, default in zip(definition.parameters, function.defaults, strict=True):
        if parameter.name not in bound:
            if default is None:
                raise Refusal(f"{definition.name} needs its argument {parameter.name}")
            bound[parameter.name] = default
    return {name: _argument(emit, name, value) for name, value in bound.items()}


def _argument(emit: Emitter, name: str, value: Value) -> Value:
    """Compute an argument once, however often the function reads it."""
    if isinstance(value, Number) and not value.known:
        return emit.fixed(value, name)
    if isinstance(value, Tuple | List):
        return replace(value, items=tuple(_argument(emit, name, item) for item in value.items))
    return value
