"""Recognition of functions that look for nearest centres in a way that matrix work does not give, for explain()."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from vispark.translate.ir import nodes
from vispark.translate.nearest.names import assigned_in
from vispark.translate.nearest.polynomials import Other
from vispark.translate.nearest.recognise import ArgumentFact, Nearest, SymbolicRun, _measure, candidates
from vispark.translate.nearest.symbols import LoopIndex, Unknown


def partially_matched(function: nodes.Function, arguments: Sequence[ArgumentFact] = ()) -> tuple[str, int] | None:
    """Return the centres among a function's values, if it seems to find the nearest centre somewhere; None if it does
    not.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark.translate import trace
    >>> partially_matched(trace(lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=1)) + 1, (np.eye(3),)))
    ('argument', 0)
    """
    for centres in candidates(function):
        run = _PartialMatch(function, centres, tuple(arguments))
        with suppress(Other):
            run.result()
        if run.seen:
            return centres
    return None


@dataclass
class _PartialMatch(SymbolicRun):
    """Symbolic run that goes on after statements that are not recognised."""

    seen: bool = False

    def value(self, node: nodes.Expression, values: dict[str, object]) -> object:
        """Return a value, which nothing is known of where it is not understood."""
        try:
            value = super().value(node, values)
        except Other:
            value = Unknown()
        self._look(value)
        return value

    def block(self, body: nodes.Statements, values: dict[str, object]) -> None:
        """Run a block's statements symbolically; names set by statements that are not understood become unknown."""
        for statement in body:
            try:
                super().block((statement,), values)
            except Other:
                for name in assigned_in((statement,)):
                    values[name] = Unknown()
                for part in vars(statement).values():
                    if isinstance(part, nodes.Expression):
                        self.value(part, values)
                if isinstance(statement, nodes.If):
                    self.block(statement.body, values)
                    self.block(statement.orelse, values)
        for value in values.values():
            self._look(value)

    def call(self, definition: nodes.Definition, values: dict[str, object]) -> object:
        """Return the result of a function, with all of its statements looked at."""
        if definition.halo is not None or definition.free:
            raise Other
        self.block(definition.body[:-1], values)
        last = definition.body[-1]
        if not isinstance(last, nodes.Return):
            self.block((last,), values)
            raise Other
        return self.value(last.value, values)

    def _library(self, name: str, operands: list[object], keywords: dict[str, object]) -> object:
        if name == "numpy.argsort" and len(operands) == 1:
            super()._library("numpy.argmin", operands, {})     # not what else there may be to sort
            self.seen = True
        return super()._library(name, operands, keywords)

    def _search(self, place: LoopIndex, body: nodes.Statements, values: dict[str, object], inner: dict[str, object],
                start_at: int) -> None:
        """Run a loop over the centres, and note whether it keeps a distance that it compares with, as a nearest search
        does.
        """
        try:
            super()._search(place, body, values, inner, start_at)
        except Other:
            match body[-1]:
                case nodes.If(nodes.Compare(left, ("<" | "<=" | ">" | ">=",), (right,)), kept, ()):
                    sides = [(left, right), (right, left)]
                    self.seen = self.seen or any(
                        isinstance(best, nodes.Local) and best.name in assigned_in(kept)
                        and _measure(self.value(found, inner), place.name) == 1 for found, best in sides)
            raise

    def _look(self, value: object) -> None:
        self.seen = self.seen or isinstance(value, Nearest)
