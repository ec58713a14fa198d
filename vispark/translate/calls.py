"""Writes calls of the user's functions in place, their ``return``, and generators given to ``sum`` and its like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from vispark.translate import form, liveness, numbers, scalars
from vispark.translate.errors import Refusal
from vispark.translate.expressions import Frame, settled
from vispark.translate.liveness import NONE, Names
from vispark.translate.scalars import literal
from vispark.translate.types import BOOL
from vispark.translate.values import Array, Function, Nothing, Number, Type, Value, join_types, shown, type_of
from vispark.translate.ways import Ways

_DEEPEST = 40


@dataclass
class Returns:
    """What the ``return`` statements of a call give.

    ``keep`` takes the value of each; ``jumps`` says that C++ has to return there, as more would follow.
    """

    keep: Callable[[Value], None]
    jumps: bool = False
    seen: Type | None = None


class Calls(Ways):
    """Functions of the user's, written where they are called."""

    returns: Returns
    depth = 0

    def inlined(self, function: Function, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """A call: the function's body in a frame of its own."""
        definition = function.definition
        if self.depth >= _DEEPEST:
            raise Refusal(f"{definition.name} calls itself, or calls are nested more than {_DEEPEST} deep: recursion is"
                          " not supported; write a loop")
        return self.called(definition, self._bound(function, arguments, keywords), function.frame)

    def called(self, definition: form.Definition, variables: dict[str, Value], outer: Frame | None) -> Value:
        """The value of a call whose parameters have their values."""
        body = definition.body
        if liveness.returns(body) <= 1 and liveness.returns_last(body) and liveness.leaves(body):
            found: list[Value] = []
            self.run(definition, variables, outer, Returns(found.append))
            return found[0]
        kind = self.result_type(definition, variables, outer)
        target = self.variable(kind, f"{definition.name}_result")
        self.run(definition, variables, outer, Returns(lambda value: self.assign(target, value)))
        return settled(target)

    def result_type(self, definition: form.Definition, variables: dict[str, Value], outer: Frame | None) -> Type:
        """The type that all ``return`` statements of a call have together."""
        taken, scratch = set(self.taken), self.scratch
        with self.apart():
            returns = self.run(definition, variables, outer, Returns(lambda value: None))
        self.taken, self.scratch = taken, scratch
        return returns.seen

    def run(self, definition: form.Definition, variables: dict[str, Value], outer: Frame | None,
            returns: Returns) -> Returns:
        """Write a function's body."""
        kept = self.__dict__.get("frame"), self.loops, self.__dict__.get("returns")
        body = definition.body
        self.frame = Frame(definition, dict(variables), liveness.mutated(body), liveness.uses(body), outer)
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

    def _body(self, definition: form.Definition) -> None:
        if self.statements(definition.body, NONE):
            here = form.Return(form.Literal(None), at=form.At(definition.text.first, 0))
            with self.told_at(here):
                self._give(Nothing())

    def _do_Return(self, statement: form.Return, after: Names) -> bool:
        value = self.expression(statement.value)
        if isinstance(statement.value, form.Local) and isinstance(value, Array):
            # The function's own name for it ends here.
            value = self.frame.variables.get(statement.value.name, value)
        self._give(value)
        return False

    def _give(self, value: Value) -> None:
        returns, kind = self.returns, type_of(value) if not isinstance(value, Function) else None
        if kind is None:
            returns.keep(value)
            return
        if isinstance(kind, Nothing) != isinstance(returns.seen or kind, Nothing):
            raise Refusal(f"{self.frame.definition.name} returns a value on some ways and none on others; return one"
                          " on each")
        try:
            returns.seen = kind if returns.seen is None else join_types(returns.seen, kind)
        except Refusal as error:
            raise Refusal(f"{self.frame.definition.name} returns {shown(returns.seen)} on one way and {shown(kind)} on "
                          "another; return one type") from error
        returns.keep(value)
        if returns.jumps:
            self.line("return;")

    def _bound(self, function: Function, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> dict[str, Value]:
        """The parameters' values in a call."""
        definition = function.definition
        taken = [parameter.name for parameter in definition.parameters if not parameter.keyword_only]
        if len(arguments) > len(taken):
            raise Refusal(f"{definition.name} takes {len(taken)} arguments, and {len(arguments)} are given")
        found = dict(zip(taken, arguments, strict=False))
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
        """An argument is computed once, however often the function reads it."""
        if isinstance(value, Number) and not value.known:
            return self.fixed(value, name)
        return value

    # -- generators ---------------------------------------------------------------------------------------------------

    def over_each(self, name: str, node: form.Each) -> Value:
        """``sum(... for ... in ...)`` and its like."""
        steps = self.settled(self.steps_of(self.expression(node.iterable)))
        if self.count_of(steps) == 0 and name in ("sum", "any", "all"):
            return literal({"sum": 0, "any": False, "all": True}[name])
        if name in ("any", "all"):
            return self._truth_of_each(name, node, steps)
        with self.apart():
            kinds: list[Any] = []
            self._turns_of_each(node, steps, lambda value: kinds.append(type_of(value)))
        kind = kinds[0]
        if not isinstance(kind, type(BOOL)):
            raise Refusal(f"{name}() of a generator is over numbers, and these are {shown(kind)}")
        if name == "sum":
            kind = scalars.binary("+", literal(0), Number(kind, "x")).type
            kind = scalars.binary("+", Number(kind, "x"), Number(kinds[0], "y")).type
            total = self.variable(kind, "sum", literal(0))
            self._turns_of_each(node, steps, lambda value: self._add(total, value))
            return replace(total, variable=False)
        return self._extreme_of_each(name, node, steps, kind)

    def _add(self, total: Number, value: Value) -> None:
        found = scalars.cast(scalars.binary("+", total, self.as_number(value)), total.type).text
        plain = f"{total.text} + "
        self.line(f"{total.text} += {found[len(plain):]};" if found.startswith(plain) and total.type.kind == "f"
                  else f"{total.text} = {found};")

    def _extreme_of_each(self, name: str, node: form.Each, steps, kind) -> Value:
        if not self.count_of(steps) or node.conditions:
            raise Refusal(f"{name}() of a generator needs at least one value: a length that is known, and no if")
        best, first = self.variable(kind, name), self.name("first")
        self.line(f"bool {first} = true;")

        def step(value: Value) -> None:
            one = self.fixed(self.as_number(value))
            self.line(f"{best.text} = {first} ? {scalars.cast(one, kind).closed} : "
                      f"{scalars.cast(numbers.extreme(name, best, one), kind).text};")
            self.line(f"{first} = false;")

        self._turns_of_each(node, steps, step)
        return replace(best, variable=False)

    def _truth_of_each(self, name: str, node: form.Each, steps) -> Value:
        found = self.variable(BOOL, f"{name}_true", literal(name == "all"))

        def step(value: Value) -> None:
            test = self.truth(value)
            with self.block(f"if ({test.text if name == 'any' else scalars.unary('not', test).text})"):
                self.line(f"{found.text} = {'true' if name == 'any' else 'false'};")
                self.line("break;")

        self._turns_of_each(node, steps, step)
        return replace(found, variable=False)

    def _turns_of_each(self, node: form.Each, steps, step: Callable[[Value], None]) -> None:
        """The loop of a generator; its target is its own variable."""
        kept = dict(self.frame.variables)
        with self.turns(steps) as item:
            for name in liveness.stored(node.target):
                self.frame.variables.pop(name, None)
            self.store(node.target, item)
            tests = [self.condition(condition) for condition in node.conditions]
            if tests:
                with self.block(f"if ({' && '.join(test.closed for test in tests)})"):
                    step(self.expression(node.value))
            else:
                step(self.expression(node.value))
        self.frame.variables = kept
