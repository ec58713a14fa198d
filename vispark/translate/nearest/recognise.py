"""Recognises nearest centres in a traced function: ``argmin`` over squared distances, however it is written.

The function is run on symbols: a row, a matrix, indices along their axes. What it computes of them are polynomials
(:mod:`vispark.translate.nearest.polynomials`), so loops, broadcast differences, ``norm`` and expanded dot products all
come out the same. A function is recognised only if all that it returns is understood; any doubt leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from vispark.translate.ir import nodes
from vispark.translate.nearest import polynomials as algebra
from vispark.translate.nearest.names import assigned_in, names_in
from vispark.translate.nearest.polynomials import NEW, Absolute, Other, Poly, Root
from vispark.translate.nearest.symbols import (
    AxisLength,
    EmptyArray,
    GivenNumber,
    Least,
    LoopIndex,
    LoopRange,
    Unknown,
    Written,
)


@dataclass(frozen=True)
class Nearest:
    """The place of the row's nearest centre, the first of several.

    Attributes
    ----------
    nan : str
        What a distance that is NaN does: "first", it is taken before any other, as by ``np.argmin``; "never", it is
        passed over, as by comparisons; "start", the same, but that of centre 0 stays, with which comparisons began.
    python : bool
        Whether the place is a Python int rather than a NumPy integer.
    """

    nan: str
    python: bool


@dataclass(frozen=True)
class Row:
    """The element itself."""


@dataclass(frozen=True)
class Recognised:
    """A function that gives the nearest centre of its row, perhaps with the row itself and constants.

    Attributes
    ----------
    result : Nearest, Row, int, float, bool or tuple of these
        What it returns.
    centres : (str, int)
        "argument" or "capture", and its number: which value the centres are.
    """

    result: object
    centres: tuple[str, int]

    @property
    def nearest(self) -> Nearest:
        """The nearest centre in the result."""
        return next(each for each in leaves(self.result) if isinstance(each, Nearest))


def leaves(result: object) -> Iterator[object]:
    """Yield the leaves of a result, in order."""
    if isinstance(result, tuple):
        for item in result:
            yield from leaves(item)
    else:
        yield result


def candidates(function: nodes.Function) -> list[tuple[str, int]]:
    """Return the values of a function that its centres may be."""
    definition = function.definition
    if definition.halo is not None or definition.free:
        return []
    arguments = [("argument", i) for i in range(len(definition.parameters) - 1)]
    return arguments + [("capture", i) for i, each in enumerate(function.captures) if len(each.value.shape) == 2]


#: What is known of an argument: an int's value, a matrix's shape, or nothing.
ArgumentFact = int | tuple[int, int] | None


def recognise(function: nodes.Function, arguments: Sequence[ArgumentFact] = ()) -> Recognised | None:
    """Return the nearest-centre function that a traced function is, or None if it is not surely one.

    Parameters
    ----------
    function : Function
        The function.
    arguments : sequence of int, (int, int) or None
        What is known of each argument beside the element. A length may be written as an int, as in ``np.zeros(K)``,
        where both are known.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark.translate import trace
    >>> recognise(trace(lambda p, c: np.argmin(np.sum((c - p) ** 2, axis=1)), (np.eye(3),)))
    Recognised(result=Nearest(nan='first', python=False), centres=('argument', 0))
    """
    for centres in candidates(function):
        try:
            result = SymbolicRun(function, centres, tuple(arguments)).result()
        except Other:
            continue
        if sum(isinstance(each, Nearest) for each in leaves(result)) == 1:
            return Recognised(result, centres)
    return None


_INFINITE = math.inf
#: The place of the first centre.
_FIRST = "0"
_COPIES = ("numpy.asarray", "numpy.array", "numpy.copy")
_ARRAY_MAKERS = ("numpy.zeros", "numpy.empty", "numpy.ones")
_BINARY = {"numpy.add": "+", "numpy.subtract": "-", "numpy.multiply": "*", "numpy.power": "**", "numpy.matmul": "@",
           "numpy.dot": "@", "numpy.inner": "inner", "numpy.vdot": "inner", "operator.add": "+", "operator.sub": "-",
           "operator.mul": "*", "operator.pow": "**", "operator.matmul": "@", "math.pow": "**", "pow": "**",
           "numpy.divide": "/", "operator.truediv": "/"}


@dataclass
class SymbolicRun:
    """One function run on symbols."""

    function: nodes.Function
    centres: tuple[str, int]
    arguments: tuple[ArgumentFact, ...] = ()
    names: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def result(self) -> object:
        """Run the function on symbols; return its result, of leaves that a kernel can compute."""
        definition = self.function.definition
        positional = [parameter for parameter in definition.parameters if not parameter.keyword_only]
        if len(positional) != len(definition.parameters):
            raise Other
        values: dict[str, object] = {}
        for number, parameter in enumerate(positional[1:]):
            argument = self.arguments[number] if number < len(self.arguments) else None
            values[parameter.name] = algebra.MATRIX if self.centres == ("argument", number) else \
                GivenNumber(argument) if isinstance(argument, int) else Unknown()
        return _shape(self.call(definition, {positional[0].name: algebra.ROW} | values))

    # -- statements ---------------------------------------------------------------------------------------------------

    def call(self, definition: nodes.Definition, values: dict[str, object]) -> object:
        """Return the result of a function for the given parameters."""
        if definition.halo is not None or definition.free:
            raise Other
        *body, last = definition.body
        self.block(tuple(body), values)
        if not isinstance(last, nodes.Return):
            raise Other
        return self.value(last.value, values)

    def block(self, body: nodes.Statements, values: dict[str, object]) -> None:
        for statement in body:
            match statement:
                case nodes.Assign(targets, value):
                    result = self.value(value, values)
                    for target in targets:
                        self.assign(target, result, values)
                case nodes.Augment(nodes.Local(name) as target, operator, value):
                    before = self.value(target, values)
                    if isinstance(before, Poly) and before.axes:
                        raise Other             # in place: the array may have another name
                    values[name] = self.binary(operator, before, self.value(value, values))
                case nodes.For(target, iterable, inner, ()):
                    self.loop(target, self.steps(iterable, values), inner, values)
                case _:
                    raise Other

    def assign(self, target: nodes.Expression, value: object, values: dict[str, object]) -> None:
        match target:
            case nodes.Local(name):
                values[name] = value
            case nodes.TupleOf(items) if isinstance(value, tuple) and len(value) == len(items):
                for item, part in zip(items, value, strict=True):
                    self.assign(item, part, values)
            case _:
                raise Other

    def loop(self, target: nodes.Expression, steps: LoopRange, body: nodes.Statements,
             values: dict[str, object]) -> None:
        place = LoopIndex(steps.axis, f"loop{next(self.names)}")
        # What the body sets has, when it starts anew, what another place along the axis left there.
        inner = values | {name: Unknown() for name in assigned_in(body)}
        self.assign(target, steps.values(place), inner)
        if steps.start and (steps.axis != "k" or not isinstance(body[-1], nodes.If)):
            raise Other
        if steps.axis == "k" and isinstance(body[-1], nodes.Assign):
            self._store(place, body, values, inner)
        elif steps.axis == "k":
            self._search(place, body, values, inner, steps.start)
        else:
            self._accumulate(place, body, values, inner)
        for name in names_in(target):
            values[name] = Unknown()

    def _store(self, place: LoopIndex, body: nodes.Statements, values: dict[str, object],
               inner: dict[str, object]) -> None:
        """Recognise a loop over the centres that fills an array: ``distances[k] = d``."""
        *before, last = body
        self.block(tuple(before), inner)
        match last:
            case nodes.Assign((nodes.Index(nodes.Local(name), (index,)),), value) if isinstance(values.get(name),
                                                                                                EmptyArray):
                if inner[name] is not values[name] or self.value(index, inner) != place:
                    raise Other
                result = self.value(value, inner)
            case _:
                raise Other
        for changed in assigned_in(body):
            values[changed] = Unknown()
        values[name] = algebra.spread(result, place.axis, place.name)

    def _search(self, place: LoopIndex, body: nodes.Statements, values: dict[str, object], inner: dict[str, object],
                start_at: int) -> None:
        """Recognise a loop over the centres that searches the nearest: ``if d < least: least, where = d, k``."""
        *before, last = body
        start = dict(inner)
        self.block(tuple(before), inner)
        if not isinstance(last, nodes.If) or last.orelse:
            raise Other
        key, least = self._compared(last.test, inner)
        if not isinstance(least, nodes.Local) or inner.get(least.name) is not start.get(least.name) \
                or _measure(key, place.name) != 1:
            raise Other
        begun = algebra.moved(values.get(least.name), place.name) == key and _measure(values[least.name], _FIRST) == 1
        if not begun and (start_at or values.get(least.name) != _INFINITE):
            raise Other
        after = dict(inner)
        self.block(last.body, after)
        changed = {name for name in after if name not in inner or after[name] is not inner[name]}
        where = changed - {least.name}
        if len(where) != 1 or after[least.name] != key or after[where_name := where.pop()] != place:
            raise Other
        first = values.get(where_name)
        if not isinstance(first, Written) or (type(first.written), first.written) != (int, 0) \
                or inner[where_name] is not start[where_name]:
            raise Other
        for name in assigned_in(body):
            values[name] = Unknown()
        values[least.name], values[where_name] = Least(), Nearest("start" if begun else "never", True)

    def _compared(self, test: nodes.Expression, values: dict[str, object]) -> tuple[object, nodes.Expression]:
        """Return the two sides of ``d < least`` or ``least > d``."""
        match test:
            case nodes.Compare(left, ("<",), (right,)):
                return self.value(left, values), right
            case nodes.Compare(left, (">",), (right,)):
                return self.value(right, values), left
        raise Other

    def _accumulate(self, place: LoopIndex, body: nodes.Statements, values: dict[str, object],
                    inner: dict[str, object]) -> None:
        """Recognise a loop over a row's items that adds to numbers."""
        bound = assigned_in(body)
        sums = {name: value for name in bound if isinstance(value := values.get(name), Poly) and not value.axes
                and not value.d}
        inner |= {name: algebra.accumulator(name) for name in sums}
        self.block(body, inner)
        for name in bound:
            values[name] = Unknown()
        for name, before in sums.items():
            after = inner[name]
            if not isinstance(after, Poly) or after.terms.get(name) != 1:
                continue
            addend = Poly((), {term: value for term, value in after.terms.items() if term != name}, after.d, after.k)
            values[name] = algebra.add(before, algebra.fold(addend, "sum", place.name)) if addend.terms else before

    # -- what loops go over -------------------------------------------------------------------------------------------

    def steps(self, node: nodes.Expression, values: dict[str, object]) -> LoopRange:
        match node:
            case nodes.Call(nodes.Library("range"), (stop,), ()):
                return self._range(self.value(stop, values))
            case nodes.Call(nodes.Library("range"), (nodes.Literal(0 | 1 as start), stop), ()):
                return replace(self._range(self.value(stop, values)), start=int(start))
            case nodes.Call(nodes.Library("enumerate"), (over,), ()):
                result = self.steps(over, values)
                if result.start:
                    raise Other
                return LoopRange(result.axis, lambda place: (place, result.values(place)))
            case nodes.Call(nodes.Library("zip"), arguments, () | (("strict", nodes.Literal()),)) if arguments:
                beside = [self.steps(each, values) for each in arguments]
                if len({each.axis for each in beside}) != 1 or any(each.start for each in beside):
                    raise Other
                return LoopRange(beside[0].axis, lambda place: tuple(each.values(place) for each in beside))
        items = self.value(node, values)
        if not isinstance(items, Poly) or not items.axes or items.axes[0] == NEW:
            raise Other
        return LoopRange(items.axes[0], lambda place: algebra.at(items, 0, place.name))

    def _range(self, stop: object) -> LoopRange:
        extent = self._extent(stop)
        return LoopRange(extent.axis, lambda place: place)

    def _extent(self, value: object) -> AxisLength:
        """Return the length of an axis, which may be written as a number that only one of them is."""
        if isinstance(value, AxisLength):
            return value
        kind, number = self.centres
        known: object = self.function.captures[number].value.shape if kind == "capture" else \
            self.arguments[number] if number < len(self.arguments) else None
        length = value.value if isinstance(value, GivenNumber) else value.written if isinstance(value,
                                                                                                Written) else None
        axes = [axis for axis, extent in zip("kd", known, strict=True)
                if type(length) is int and extent == length] if isinstance(known, tuple) else []
        if len(axes) != 1:
            raise Other
        return AxisLength(axes[0])

    # -- expressions --------------------------------------------------------------------------------------------------

    def value(self, node: nodes.Expression, values: dict[str, object]) -> object:
        match node:
            case nodes.Local(name) if name in values:
                return values[name]
            case nodes.Captured(number):
                return self._captured(number)
            case nodes.Literal(value):
                return _number(value)
            case nodes.Unary("-", operand):
                return self.binary("*", algebra.constant(-1), self.value(operand, values))
            case nodes.Unary("+", operand):
                return self.value(operand, values)
            case nodes.Binary(operator, left, right):
                return self.binary(operator, self.value(left, values), self.value(right, values))
            case nodes.TupleOf(items):
                return tuple(self.value(item, values) for item in items)
            case nodes.Index(value, indices):
                return self._index(self.value(value, values), indices, values)
            case nodes.Attribute(value, name):
                return self._attribute(self.value(value, values), name)
            case nodes.Call():
                return self._called(node, values)
            case nodes.Listed(value, target, iterable, ()):
                place, result = self._at_each(value, target, iterable, values)
                return algebra.spread(result, place.axis, place.name)
        raise Other

    def _captured(self, number: int) -> object:
        if self.centres == ("capture", number):
            return algebra.MATRIX
        # Other numbers of the same kind take the same kernel, but for ints and infinities.
        value = self.function.captures[number].value
        if value.shape or not value.weak or (isinstance(value.number, float) and math.isfinite(value.number)):
            return Unknown()
        return _number(value.number)

    def _attribute(self, value: object, name: str) -> object:
        if not isinstance(value, Poly) or NEW in value.axes:
            raise Other
        if name == "T":
            return replace(value, axes=value.axes[::-1])
        if name == "shape":
            return tuple(AxisLength(axis) for axis in value.axes)
        if name == "size" and len(value.axes) == 1:
            return AxisLength(value.axes[0])
        raise Other

    def _index(self, value: object, indices: Sequence[nodes.Expression], values: dict[str, object]) -> object:
        if isinstance(value, tuple):
            number = self.value(indices[0], values)
            item = number.number if isinstance(number, Poly) else None
            if len(indices) != 1 or item is None or item.denominator != 1 or not -len(value) <= item < len(value):
                raise Other
            return value[int(item)]
        if not isinstance(value, Poly):
            raise Other
        axes: list[str] = []
        remaining = list(value.axes)
        for node in indices:
            if isinstance(node, nodes.Literal) and node.value is None:
                axes.append(NEW)
            elif node == nodes.Slice(None, None, None) and remaining:
                axes.append(remaining.pop(0))
            elif remaining and isinstance(place := self.value(node, values), LoopIndex) and place.axis == remaining[0]:
                value = algebra.at(value, value.axes.index(remaining.pop(0)), place.name)
            elif remaining[:1] == ["k"] and node == nodes.Literal(0):
                value = algebra.at(value, value.axes.index(remaining.pop(0)), _FIRST)
            else:
                raise Other
        return replace(value, axes=(*axes, *remaining))

    def binary(self, operator: str, left: object, right: object) -> object:
        if isinstance(left, Absolute):
            if (operator, right) == ("**", algebra.constant(2)) or (operator == "*" and left == right):
                return algebra.multiply(left.of, left.of)
            raise Other
        if isinstance(left, Root) and operator == "**" and right == algebra.constant(2):
            return left.of
        if isinstance(left, Root) and operator == "*" and left == right:
            return left.of
        if not isinstance(left, Poly) or not isinstance(right, Poly):
            raise Other
        match operator:
            case "+" | "-":
                return algebra.add(left, right, 1 if operator == "+" else -1)
            case "*":
                return algebra.multiply(left, right)
            case "/" if right.number:
                return algebra.multiply(left, algebra.constant(1 / right.number))
            case "**" if right == algebra.constant(2):
                return algebra.multiply(left, left)
            case "**" if right == algebra.constant(Fraction(1, 2)):
                return Root(left)
            case "@":
                return algebra.dot(left, right)
            case "inner" if len(right.axes) == 1 or left.axes == right.axes == ("d",):
                return algebra.dot(left, right)
        raise Other

    def _called(self, node: nodes.Call, values: dict[str, object]) -> object:
        function = node.function
        if isinstance(function, nodes.Called):
            return self._inline(function.definition, node, values)
        arguments = [*node.arguments]
        if isinstance(function, nodes.Attribute):
            name, arguments = f"numpy.{function.name}", [function.value, *arguments]
            if isinstance(function.value, nodes.Library):
                raise Other
        elif isinstance(function, nodes.Library):
            name = function.name
        else:
            raise Other
        if name == "sum" and len(arguments) == 1 and isinstance(arguments[0], nodes.Each | nodes.Listed) \
                and not node.keywords:
            return self._each(arguments[0], values)
        if name == "min" and len(arguments) == 1 and [key for key, _ in node.keywords] == ["key"]:
            return self._least_of(arguments[0], node.keywords[0][1], values)
        if name == "numpy.einsum" and isinstance(arguments[0], nodes.Literal) and not node.keywords:
            return algebra.einsum(arguments[0].value, [self.value(each, values) for each in arguments[1:]])
        operands = [self.value(each, values) for each in arguments]
        return self._library(name, operands, {key: self.value(each, values) for key, each in node.keywords})

    def _inline(self, definition: nodes.Definition, node: nodes.Call, values: dict[str, object]) -> object:
        names = [parameter.name for parameter in definition.parameters]
        passed = dict(zip(names, (self.value(each, values) for each in node.arguments), strict=False))
        passed |= {key: self.value(each, values) for key, each in node.keywords}
        if set(passed) != set(names) or len(node.arguments) + len(node.keywords) != len(names):
            raise Other
        return self.call(definition, passed)

    def _least_of(self, over: nodes.Expression, key: nodes.Expression, values: dict[str, object]) -> Nearest:
        """Recognise ``min(range(len(c)), key=lambda k: ...)``, in which centre 0 wins against NaN."""
        steps = self.steps(over, values)
        place = LoopIndex(steps.axis, f"loop{next(self.names)}")
        if steps.axis != "k" or steps.start or steps.values(place) != place or not isinstance(key, nodes.Called):
            raise Other
        definition = key.definition
        if len(definition.parameters) != 1 or not set(definition.free) <= set(values):
            raise Other
        inner = {name: values[name] for name in definition.free} | {definition.parameters[0].name: place}
        if _measure(self.call(replace(definition, free=()), inner), place.name) != 1:
            raise Other
        return Nearest("start", True)

    def _each(self, node: nodes.Each | nodes.Listed, values: dict[str, object]) -> object:
        if node.conditions:
            raise Other
        place, result = self._at_each(node.value, node.target, node.iterable, values)
        if place.axis != "d" or not isinstance(result, Poly) or result.axes:
            raise Other
        return algebra.fold(result, "sum", place.name)

    def _at_each(self, value: nodes.Expression, target: nodes.Expression, iterable: nodes.Expression,
                 values: dict[str, object]) -> tuple[LoopIndex, object]:
        """Return the index of a comprehension's loop, and the value of its element at that index."""
        steps = self.steps(iterable, values)
        if steps.start:
            raise Other
        place = LoopIndex(steps.axis, f"loop{next(self.names)}")
        inner = dict(values)
        self.assign(target, steps.values(place), inner)
        return place, self.value(value, inner)

    def _library(self, name: str, operands: list[object], keywords: dict[str, object]) -> object:
        if name in _BINARY and len(operands) == 2 and not keywords:
            return self.binary(_BINARY[name], *operands)
        if name == "numpy.linalg.norm" and len(operands) > 1:
            keywords |= dict(zip(("ord", "axis"), operands[1:], strict=False))
            operands = operands[:1]
        if keywords.pop("ord", 2) not in (2, algebra.constant(2)):
            raise Other
        takes_axis = name in ("numpy.sum", "numpy.mean", "numpy.argmin", "numpy.argmax")
        axis = operands.pop() if takes_axis and len(operands) == 2 else keywords.pop("axis", None)
        if name == "numpy.full" and len(operands) == 2:
            fill = operands.pop()
            if not isinstance(fill.written if isinstance(fill, Written) else fill, float):
                raise Other             # an array of ints would cut distances off
            name = "numpy.empty"
        if keywords or len(operands) != 1:
            raise Other
        value = operands[0]
        if name in ("numpy.argmin", "numpy.argmax"):
            return _extreme(value, axis, 1 if name == "numpy.argmin" else -1)
        if name in ("numpy.sum", "numpy.mean", "sum"):
            return algebra.fold(algebra.along(value, axis), "mean" if name == "numpy.mean" else "sum")
        if name == "numpy.linalg.norm":
            along = algebra.along(value, axis)
            return Root(algebra.fold(algebra.multiply(along, along), "sum"))
        if axis is not None:
            raise Other
        if name == "len" and isinstance(value, Poly) and value.axes and value.axes[0] != NEW:
            return AxisLength(value.axes[0])
        if name == "int" and isinstance(value, Nearest):
            return replace(value, python=True)
        if name == "numpy.transpose":
            return self._attribute(value, "T")
        if name == "numpy.square":
            return self.binary("**", value, algebra.constant(2))
        if name in ("numpy.abs", "numpy.absolute", "numpy.fabs", "abs") and isinstance(value, Poly):
            return Absolute(value)
        if name in _ARRAY_MAKERS and self._extent(value) == AxisLength("k"):
            return EmptyArray()
        if name in ("numpy.sqrt", "math.sqrt") and isinstance(value, Poly):
            return Root(value)
        if name in _COPIES and isinstance(value, Poly | Root):
            return value
        if name in ("float", "numpy.float64") and isinstance(value, Root | Poly) and not _axes(value):
            return value
        raise Other


def _axes(value: Poly | Root) -> tuple[str, ...]:
    return value.of.axes if isinstance(value, Root) else value.axes


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Unknown() if not isinstance(value, bool) else value
    if math.isnan(value):
        raise Other
    if math.isinf(value):
        return value
    number = algebra.constant(Fraction(value))
    return Written(number.axes, number.terms, written=value)


def _extreme(value: object, axis: object, sign: int) -> Nearest:
    if axis is not None and axis not in (algebra.constant(0), algebra.constant(-1)):
        raise Other
    poly = value.of if isinstance(value, Root) else value
    if not isinstance(poly, Poly) or poly.axes != ("k",) or _measure(value, "axis") != sign:
        raise Other
    return Nearest("first", False)


def _measure(value: object, place: str) -> int:
    """Return :func:`algebra.distance` of a value that is a distance from the centre at ``place``, and 0 of others; a
    root must be of the distance itself.
    """
    if isinstance(value, Root):
        whole = value.of.terms.get((2, 0, "sum")) or value.of.terms.get((2, 0, "mean"))
        exact = len(value.of.terms) == 3 and whole is not None and whole > 0
        return algebra.distance(value.of) if exact and value.of.k == place and not value.of.d else 0
    return algebra.distance(value) if isinstance(value, Poly) and value.k == place and not value.d else 0


def _shape(value: object) -> object:
    """Return a result's leaves, where all of them can be given."""
    if isinstance(value, tuple):
        return tuple(_shape(item) for item in value)
    if isinstance(value, Nearest):
        return value
    if isinstance(value, Written):
        return value.written
    if isinstance(value, bool):
        return value
    if value == algebra.ROW:
        return Row()
    raise Other
