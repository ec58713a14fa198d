"""Writes calls of the user's functions in place, their ``return``, and generators given to ``sum`` and its like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vispark.translate.codegen.scalar.casts import literal
from vispark.translate.codegen.scalar.scalars import NeedsStatic
from vispark.translate.codegen.syntax.comprehensions import Comprehensions
from vispark.translate.codegen.syntax.expressions import CallFrame, settled
from vispark.translate.ir import liveness, nodes
from vispark.translate.ir.errors import Refusal
from vispark.translate.ir.liveness import NONE, Names
from vispark.translate.ir.values import (
    Array,
    LocalFunction,
    Nothing,
    Number,
    Tuple,
    Type,
    Value,
    join_types,
    shown,
    type_of,
)

_DEEPEST = 40


@dataclass
class Returns:
    """Handler of a call's ``return`` statements.

    ``keep`` takes the value of each; ``jumps`` says that C++ has to return there, as more would follow. ``tests`` are
    those of the ifs around them.
    """

    keep: Callable[[Value], None]
    jumps: bool = False
    seen: Type | None = None
    tests: tuple[Number, ...] = ()


class Calls(Comprehensions):
    """Functions of the user's, written where they are called."""

    returns: Returns
    depth = 0

    def inlined(self, function: LocalFunction, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call: the function's body in a frame of its own."""
        definition = function.definition
        if self.depth >= _DEEPEST:
            raise Refusal(f"{definition.name} calls itself, or calls are nested more than {_DEEPEST} deep: recursion is"
                          " not supported; write a loop")
        return self.called(definition, self._bound(function, arguments, keywords), function.frame)

    def called(self, definition: nodes.Definition, variables: dict[str, Value], outer: CallFrame | None) -> Value:
        """Return the value of a call whose parameters have their values."""
        body = definition.body
        if liveness.returns(body) <= 1 and liveness.returns_last(body) and liveness.leaves(body):
            found: list[Value] = []
            self.run(definition, variables, outer, Returns(found.append))
            return found[0]
        kind = self.result_type(definition, variables, outer)
        target = self.variable(kind, f"{definition.name}_result")
        self.run(definition, variables, outer, Returns(lambda value: self.assign(target, value)))
        return settled(target)

    def result_type(self, definition: nodes.Definition, variables: dict[str, Value], outer: CallFrame | None) -> Type:
        """Return the type that all ``return`` statements of a call have together."""
        taken, scratch = set(self.taken), self.scratch
        with self.apart():
            returns = self.run(definition, variables, outer, Returns(lambda value: None))
        self.taken, self.scratch = taken, scratch
        return returns.seen

    def run(self, definition: nodes.Definition, variables: dict[str, Value], outer: CallFrame | None,
            returns: Returns) -> Returns:
        """Write a function's body."""
        kept = self.__dict__.get("frame"), self.loops, self.__dict__.get("returns")
        body = definition.body
        self.frame = CallFrame(definition, dict(variables), liveness.mutated(body), liveness.uses(body), outer)
        self.loops, self.returns, self.depth = [], returns, self.depth + 1
        returns.jumps = not liveness.returns_last(body)
        if returns.jumps:
            with self.block("[&]", "}();"):
                self._body(definition)
        else:
            self._body(definition)
        self.depth -= 1
        self.frame, self.loops, self.returns = kept
        return returns

    def _body(self, definition: nodes.Definition) -> None:
        if self.statements(definition.body, NONE):
            here = nodes.Return(nodes.Literal(None), at=definition.at)
            with self.told_at(here):
                self._give(Nothing())

    def _do_Return(self, statement: nodes.Return, after: Names) -> bool:
        value = self.expression(statement.value)
        if isinstance(statement.value, nodes.Local) and isinstance(value, Array):
            # The function's own name for it ends here.
            value = self.frame.variables.get(statement.value.name, value)
        self._give(value)
        return False

    def _give(self, value: Value) -> None:
        returns, kind = self.returns, type_of(value) if not isinstance(value, LocalFunction) else None
        returns.tests += self.tests
        if kind is None:
            returns.keep(value)
            return
        if isinstance(kind, Nothing) != isinstance(returns.seen or kind, Nothing):
            raise Refusal(f"{self.frame.definition.name} returns a value on some ways and none on others; return one"
                          " on each")
        try:
            returns.seen = kind if returns.seen is None else join_types(returns.seen, kind)
        except Refusal as error:
            test = next((test for test in returns.tests if test.sources or test.numpy_int), literal(False))
            raise NeedsStatic.of(test, f"{self.frame.definition.name} returns {shown(returns.seen)} on one way and "
                                       f"{shown(kind)} on another; return one type") from error
        returns.keep(value)
        if returns.jumps:
            self.line("return;")

    def _bound(self, function: LocalFunction, arguments: tuple[Value, ...],
               keywords: dict[str, Value]) -> dict[str, Value]:
        """Return the parameters' values in a call."""
        definition = function.definition
        taken = [parameter.name for parameter in definition.parameters if not parameter.keyword_only]
        many = [parameter.name for parameter in definition.parameters if parameter.many]
        if len(arguments) > len(taken) and not many:
            raise Refusal(f"{definition.name} takes {len(taken)} arguments, and {len(arguments)} are given")
        found = dict(zip(taken, arguments, strict=False)) | {name: Tuple(arguments[len(taken):]) for name in many}
        for name, value in keywords.items():
            if name in found or name not in {parameter.name for parameter in definition.parameters}:
                raise Refusal(f"{definition.name} has no parameter {name}" if name not in found else
                              f"{definition.name} is given {name} twice")
            found[name] = value
        for parameter, default in zip(definition.parameters, function.defaults, strict=True):
            if parameter.name not in found:
                if default is None:
                    raise Refusal(f"{definition.name} needs its argument {parameter.name}")
                found[parameter.name] = default
        return {name: self._argument(name, value) for name, value in found.items()}

    def _argument(self, name: str, value: Value) -> Value:
        """Compute an argument once, however often the function reads it."""
        if isinstance(value, Number) and not value.known:
            return self.fixed(value, name)
        if isinstance(value, Tuple):
            return Tuple(tuple(self._argument(name, item) for item in value.items))
        return value
