"""Analysis of whether a function of Python numbers of known ranges gives in workers what it gives in Python.

Workers compute with NumPy's scalars of 64 bits. Python's ints have no bounds, its numbers raise where NumPy's give
infinities or NaN, and it compares ints with floats exactly. The form is evaluated with ranges in place of numbers; what
may differ for a number of these ranges, and what is not known here, is doubtful. NumPy's numbers mean the same in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vispark.translate.frontend import python_ranges as ranges
from vispark.translate.frontend.python_ranges import (
    COMPARED,
    EXACT,
    TRUTH,
    WIDE,
    Doubtful,
    NumberRange,
    OfNumPy,
    Range,
    dtype_of,
    flat,
    is_python,
    probed,
)
from vispark.translate.ir import nodes
from vispark.translate.ir.nodes import At, Definition, Expression, Function, Statements
from vispark.translate.ir.references import Reference
from vispark.translate.language import composed

#: How often a loop's body is looked at before what still grows has no bounds.
_TURNS = 3
#: Methods of arrays of float64 whose results are float64.
_FLOAT_METHODS = frozenset(["sum", "mean", "max", "min", "dot", "std", "var", "prod", "copy"])
#: Functions written in the language, which do as NumPy or ``math`` do with arguments that these take.
_OWN = f"{Path(composed.__file__).parent}/"

_OTHER_TYPE = "gives numbers of NumPy's, or of another type than the records"

_Known = Mapping[str, NumberRange]


def why_not_exact(function: Function, record: NumberRange) -> str:
    """Return the first reason why a function may give something else in workers than in Python; empty if it does not.

    Parameters
    ----------
    record : Range, OfNumPy or tuple of them
        What the function's only argument may be.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> why_not_exact(trace(lambda x: x * 4 > 10), Range("int", -5, 7))
    ''
    >>> why_not_exact(trace(lambda x: x * 4 > 10), Range("int", 0, 2 ** 62)).partition(": ")[2]
    'x * 4 may leave 64 bits, which ints of Python do not'
    """
    return _doubt(function, lambda evaluation: evaluation.called(function.definition, [record], {}, {}))


def why_no_exact_number(function: Function, record: NumberRange) -> str:
    """Return the first reason why a function may give something else in workers than in Python, as
    :func:`why_not_exact`, or may give NumPy's numbers or, depending on the record, ints or floats.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> why_no_exact_number(trace(lambda x: x if x > 0.0 else 0), Range("float", -5.0, 7.0)).partition(": ")[2]
    'it gives an int or a float, which depends on the record'
    """
    def evaluated(evaluation: _Evaluation) -> None:
        result = evaluation.called(function.definition, [record], {}, {})
        for number in flat(result) if is_python(record) else ():
            if not isinstance(number, Range) or number.kind == "mixed":
                raise Doubtful(_OTHER_TYPE if isinstance(number, OfNumPy) else "gives an int or a float, which depends "
                               "on the record")

    return _doubt(function, evaluated)


def why_no_exact_join(function: Function, record: NumberRange, *, is_mapped: bool = False) -> str:
    """Return the first reason why the fold of records by a function of two may give something else in workers than in
    Python; empty if it does not.

    Parameters
    ----------
    is_mapped : bool
        Whether a ``vmap`` made the records: of what functions of NumPy's give of Python's numbers it makes Python's.

    Examples
    --------
    >>> from vispark.translate.frontend.reader import trace
    >>> why_no_exact_join(trace(lambda a, b: a if a * a > b * b else b), Range("int", -5, 7))
    ''
    >>> why_no_exact_join(trace(lambda a, b: a + b + 1), Range("int", -5, 7)).partition(": ")[2]
    'a + b may leave 64 bits, which ints of Python do not'
    """
    def evaluated(evaluation: _Evaluation) -> None:
        total = record
        for number in range(_TURNS + 2):
            result = evaluation.called(function.definition, [total, total], {}, {})
            if is_mapped:
                result = ranges.as_pythons(result, record)
            joined = ranges.either(total, result)
            for after, before in zip(flat(result), flat(record), strict=True):
                if isinstance(before, Range) and not (isinstance(after, Range) and after.kind == before.kind):
                    raise Doubtful(_OTHER_TYPE)
            if joined == total:
                return
            total = joined if number < _TURNS else ranges.all_of(joined)

    return _doubt(function, evaluated)


def _doubt(function: Function, evaluated: Callable[[_Evaluation], object]) -> str:
    """Return the first doubt that the evaluation of a function meets; empty if there is none."""
    if any(isinstance(each.value.data, Reference) for each in function.captures):
        return ""       # of a table in the workers, which Python has not
    evaluation = _Evaluation(function)
    try:
        evaluated(evaluation)
    except Doubtful as error:
        definition = function.definition
        return str(error) if error.is_placed else f"line {definition.at.line} of {definition.name}: it {error}"
    return ""


class _Evaluation:
    """Evaluation of a function, and of those that it calls, with ranges in place of numbers."""

    def __init__(self, function: Function):
        self.captures = function.captures
        self.reading: list[Definition] = []
        #: The variables where each loop around is left or begun anew, and the results of the functions around.
        self.exits: list[list[_Known]] = []
        self.results: list[list[NumberRange]] = []

    def doubt(self, node: Any, why: str) -> NoReturn:
        """Raise with the user's code and its line."""
        definition = self.reading[-1]
        line, text = _shown(definition, node.at)
        raise Doubtful(f"line {line} of {definition.name}: {text} {why}", is_placed=True)

    def _placed(self, node: Any, error: Doubtful) -> NoReturn:
        if error.is_placed:
            raise error
        self.doubt(node, str(error))

    # -- functions and statements -------------------------------------------------------------------------------------

    def called(self, definition: Definition, arguments: Sequence[NumberRange], named: Mapping[str, NumberRange],
               around: _Known) -> NumberRange:
        """Return the result of a function."""
        positional = [each for each in definition.parameters if not each.keyword_only]
        self.reading.append(definition)
        if any(each.many for each in definition.parameters) or len(arguments) > len(positional):
            self.doubt(definition, "takes any number of arguments, which is not followed")
        if definition.text.file.startswith(_OWN) and any(map(is_python, (*arguments, *named.values()))):
            self.doubt(definition, "is not followed for Python numbers")
        variables: dict[str, NumberRange] = {name: around[name] for name in definition.free if name in around}
        variables |= {each.name: value for each, value in zip(positional, arguments, strict=False)} | dict(named)
        for parameter in definition.parameters:
            if parameter.name not in variables and parameter.default is not None:
                variables[parameter.name] = self.of(parameter.default, around)
        self.results.append([])
        after = self.block(definition.body, variables)
        results = self.results.pop()
        if after is not None or not results:
            self.doubt(definition, "may return None")
        joined = results[0]
        for result in results[1:]:
            joined = ranges.either(joined, result)
        self.reading.pop()
        return joined

    def block(self, body: Statements, known: _Known | None) -> _Known | None:
        """Return the variables after some statements; None if nothing gets there."""
        for statement in body:
            if known is None:
                return None
            known = self.statement(statement, known)
        return known

    def statement(self, statement: nodes.Statement, known: _Known) -> _Known | None:
        """Return the variables after a statement."""
        try:
            return self._statement(statement, known)
        except Doubtful as error:
            self._placed(statement, error)

    def _statement(self, statement: nodes.Statement, known: _Known) -> _Known | None:
        match statement:
            case nodes.Return(value):
                self.results[-1].append(self.of(value, known))
                return None
            case nodes.Assign(targets, value):
                result = self.of(value, known)
                for target in targets:
                    known = self.bound(target, result, known)
                return known
            case nodes.Augment(target, symbol, value):
                updated = ranges.binary(symbol, self.of(target, known), self.of(value, known))
                return self.bound(target, updated, known)
            case nodes.If(test, body, orelse):
                self.of(test, known)
                return self.joined([self.block(body, _where(test, known, self, holds=True)),
                                    self.block(orelse, _where(test, known, self, holds=False))])
            case nodes.For(target, iterable, body, orelse):
                item = self.item_of(statement, iterable, known)
                return self.loop(known, lambda one: self.block(body, self.bound(target, item, one)), orelse)
            case nodes.While(test, body, orelse):
                def turn(one: _Known) -> _Known | None:
                    self.of(test, one)
                    return self.block(body, _where(test, one, self, holds=True))
                return self.loop(known, turn, orelse)
            case nodes.Break() | nodes.Continue():
                self.exits[-1].append(known)
                return None
        self.doubt(statement, "is not followed")

    def loop(self, known: _Known, turn: Callable[[_Known], _Known | None], orelse: Statements) -> _Known | None:
        """Return the variables after any number of turns of a loop."""
        for number in range(_TURNS + 2):
            self.exits.append([])
            after = turn(known)
            states = [known, after, *self.exits.pop()]
            joined = self.joined(states)
            assert joined is not None
            if joined == known:
                break
            known = joined if number < _TURNS else {
                name: value if value == known.get(name) else ranges.unbounded(value)
                for name, value in joined.items()}
        return self.joined([known, self.block(orelse, known)])

    def bound(self, target: Expression, value: NumberRange, known: _Known) -> _Known:
        """Return the variables after an assignment."""
        match target:
            case nodes.Local(name):
                return {**known, name: value}
            case nodes.TupleOf(items) if isinstance(value, tuple) and len(value) == len(items):
                for item, part in zip(items, value, strict=True):
                    known = self.bound(item, part, known)
                return known
            case nodes.TupleOf(items) if isinstance(value, OfNumPy):
                for item in items:
                    known = self.bound(item, value, known)
                return known
        self.doubt(target, "is assigned to, which is not followed")

    def joined(self, states: Sequence[_Known | None]) -> _Known | None:
        """Return the variables that are known on every way to a place."""
        ways = [each for each in states if each is not None]
        if not ways:
            return None
        joined = dict(ways[0])
        for other in ways[1:]:
            joined = {name: ranges.either(value, other[name]) for name, value in joined.items() if name in other}
        return joined

    def item_of(self, node: Any, iterable: Expression, known: _Known) -> NumberRange:
        """Return the range of what a loop goes over."""
        match iterable:
            case nodes.Call(nodes.Library("range"), bounds, ()):
                ends = [self.of(each, known) for each in bounds]
                if not all(isinstance(each, Range) and each.kind == "int" for each in ends):
                    self.doubt(node, "has bounds that are not followed")
                lows, highs = [each.low for each in ends], [each.high for each in ends]     # type: ignore[union-attr]
                if len(ends) == 1:
                    return Range("int", 0, max(highs[0] - 1, 0))
                return Range("int", min(lows[0], lows[1]), max(highs[0], highs[1]))
        result = self.of(iterable, known)
        if isinstance(result, OfNumPy):
            return self.number_of(iterable, 1) or result
        if not isinstance(result, tuple) or not result:
            self.doubt(node, "goes over what is not followed")
        item = result[0]
        for other in result[1:]:
            item = ranges.either(item, other)
        return item

    # -- expressions --------------------------------------------------------------------------------------------------

    def of(self, expression: Expression, known: _Known) -> NumberRange:
        """Return the range of an expression."""
        try:
            return self._of(expression, known)
        except Doubtful as error:
            self._placed(expression, error)

    def _of(self, expression: Expression, known: _Known) -> NumberRange:
        match expression:
            case nodes.Literal(value) if isinstance(value, int | float):
                return ranges.number(value)
            case nodes.Local(name) if name in known:
                return known[name]
            case nodes.Captured(number):
                constant = self.captures[number].value
                if constant.weak and not constant.shape and np.dtype(constant.dtype).kind in "bif":
                    return ranges.number(constant.number)
                return OfNumPy(np.dtype(constant.dtype).name)
            case nodes.Unary(symbol, operand):
                return ranges.unary(symbol, self.of(operand, known))
            case nodes.Binary(symbol, left, right):
                return ranges.binary(symbol, self.of(left, known), self.of(right, known))
            case nodes.Compare(first, symbols, others):
                left = first
                for symbol, right in zip(symbols, others, strict=True):
                    if not (symbol in ("is", "is not") and right == nodes.Literal(None)):
                        result = ranges.compared(symbol, self.of(left, known), self.of(right, known))
                        if isinstance(result, OfNumPy) and len(symbols) == 1:
                            return result
                    left = right
                return TRUTH
            case nodes.Logical(symbol, operands):
                values = []
                for part in operands:
                    values.append(self.of(part, known))
                    known = _where(part, known, self, holds=symbol == "and")
                result = values[0]
                for value in values[1:]:
                    result = ranges.either(result, value)
                return result
            case nodes.Choice(test, yes, no):
                self.of(test, known)
                return ranges.either(self.of(yes, _where(test, known, self, holds=True)),
                                     self.of(no, _where(test, known, self, holds=False)))
            case nodes.TupleOf(items) | nodes.ListOf(items) if not any(isinstance(each, nodes.Spread)
                                                                       for each in items):
                return tuple([self.of(each, known) for each in items])
            case nodes.DictOf(names, items):
                return dict(sorted(zip(names, [self.of(each, known) for each in items], strict=True)))
            case nodes.FieldOf(value, name) if isinstance(fields := self.of(value, known), dict) and name in fields:
                return fields[name]
            case nodes.Index(value, indices):
                return self.item(expression, value, indices, known)
            case nodes.Attribute(value, _) if isinstance(self.of(value, known), OfNumPy):
                return OfNumPy()
            case nodes.Call(function, arguments, keywords):
                return self.call(expression, function, arguments, dict(keywords), known)
            case nodes.Slice():
                return OfNumPy()
            case nodes.Called():
                return expression
        self.doubt(expression, "is not followed for Python numbers")

    def item(self, node: nodes.Index, value: Expression, indices: tuple[Expression, ...], known: _Known) -> NumberRange:
        """Return the range of an item."""
        items = self.of(value, known)
        places = [self.of(each, known) for each in indices]
        if isinstance(items, tuple) and len(places) == 1 and isinstance(place := places[0], Range) \
                and place.kind == "int" and place.low == place.high and -len(items) <= place.low < len(items):
            item: NumberRange = items[place.low]
            return item
        if not isinstance(items, OfNumPy):
            self.doubt(node, "is not followed for Python numbers")
        return self.number_of(value, len(places)) or items

    def number_of(self, value: Expression, axes: int) -> Range | None:
        """Return the range of the numbers of a captured array, which may be a list, of Python numbers."""
        if isinstance(value, nodes.Captured):
            array = self.captures[value.number].value.array
            kind = array.dtype.name.rstrip("64")
            if array.size and array.ndim == axes and kind in ("bool", "int", "float"):
                return Range.of("float") if np.isnan(array).any() else Range(kind, array.min().item(),
                                                                             array.max().item())
        return None

    # -- calls --------------------------------------------------------------------------------------------------------

    def call(self, node: nodes.Call, function: Expression, arguments: tuple[Expression, ...],
             keywords: dict[str, Expression], known: _Known) -> NumberRange:
        """Return the result of a call."""
        if isinstance(function, nodes.Local) and isinstance(inside := known.get(function.name), nodes.Called):
            function = inside
        match function:
            case nodes.Library("any" | "all" as name) if len(arguments) == 1 and isinstance(arguments[0], nodes.Each):
                self.each(arguments[0], known)
                return TRUTH
            case nodes.Called(inner) if not any(isinstance(each, nodes.Spread) for each in arguments):
                return self.called(inner, [self.of(each, known) for each in arguments],
                                   {name: self.of(value, known) for name, value in keywords.items()}, known)
            case nodes.Library(name):
                operands = [self.of(each, known) for each in arguments]
                if name.startswith("numpy."):
                    return self.numpy(node, name.removeprefix("numpy."), operands, keywords, known)
                symbol = SYMBOLS.get(name)
                if symbol and len(operands) == 2 and not keywords:
                    return ranges.compared(symbol, *operands) if symbol in COMPARED else \
                        ranges.binary(symbol, *operands)
                if name == "bool" and len(operands) == 1:
                    return TRUTH
                if name == "len" and isinstance(operands[0], OfNumPy):
                    return Range("int", 0, EXACT)
                if operands and not keywords and all(isinstance(each, OfNumPy) for each in operands):
                    return OfNumPy()
                if not keywords:
                    return ranges.library(name, operands)
            case nodes.Attribute(value, name):
                of = self.of(value, known)
                others = [self.of(each, known) for each in arguments]
                if isinstance(of, OfNumPy) and not any(map(is_python, others)):
                    return OfNumPy("float64" if of.dtype == "float64" and name in _FLOAT_METHODS else "")
        self.doubt(node, "is not followed for Python numbers")

    def each(self, node: nodes.Each, known: _Known) -> NumberRange:
        """Return the range of what a generator yields."""
        known = self.bound(node.target, self.item_of(node, node.iterable, known), known)
        for condition in node.conditions:
            self.of(condition, known)
            known = _where(condition, known, self, holds=True)
        return self.each(node.value, known) if isinstance(node.value, nodes.Each) else self.of(node.value, known)

    def numpy(self, node: Any, name: str, operands: Sequence[NumberRange], keywords: dict[str, Expression],
              known: _Known) -> NumberRange:
        """Return the result of a function of NumPy's: the same of Python numbers as of NumPy's of 64 bits."""
        others = [self.of(each, known) for key, each in keywords.items() if key != "dtype"]
        numbers = [each for value in (*operands, *others) for each in flat(value)]
        narrow = any(isinstance(each, OfNumPy) and each.dtype not in WIDE for each in numbers)
        if narrow and any(isinstance(each, Range) and not each.literal for each in numbers):
            self.doubt(node, "computes with Python numbers and with another type of NumPy")
        if any(isinstance(each, Range) and each.kind == "mixed" for each in numbers):
            self.doubt(node, "computes with what may be an int or a float")
        dtype = getattr(np, name, None)
        if isinstance(dtype, type) and issubclass(dtype, np.generic):
            if issubclass(dtype, np.integer) and len(operands) == 1 and isinstance(value := operands[0], Range):
                info = np.iinfo(dtype)
                if not (value.is_finite and info.min <= value.low and value.high <= info.max):
                    self.doubt(node, f"may be outside of {np.dtype(dtype).name}, which raises in Python")
            return OfNumPy(np.dtype(dtype).name)
        kinds = [dtype_of(each) for each in operands]
        return OfNumPy(probed(getattr(np, name, None), kinds) if all(kinds) and not keywords else "")

SYMBOLS = {"operator.add": "+", "operator.sub": "-", "operator.mul": "*", "operator.truediv": "/",
            "operator.floordiv": "//", "operator.mod": "%", "operator.pow": "**", "operator.lt": "<",
            "operator.le": "<=", "operator.gt": ">", "operator.ge": ">=", "operator.eq": "==", "operator.ne": "!=",
            "operator.and_": "&", "operator.or_": "|", "operator.xor": "^"}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "!=", "!=": "=="}


def _shown(definition: Definition, at: At) -> tuple[int, str]:
    """Return a node's line, and its text as far as it is in this line."""
    at = at if at.line else definition.at
    number = at.line - definition.text.first
    if not 0 <= number < len(definition.text.lines):
        return at.line, definition.name
    line = definition.text.lines[number].encode()
    end = at.end_column if at.end_line == at.line else len(line)
    return at.line, line[at.column:end].decode(errors="ignore").strip() or definition.name


def _where(test: Expression, known: _Known, evaluation: _Evaluation, *, holds: bool) -> _Known:
    """Return the variables where a test holds, or does not."""
    match test:
        case nodes.Unary("not", operand):
            return _where(operand, known, evaluation, holds=not holds)
        case nodes.Logical(symbol, operands) if (symbol == "and") == holds:
            for part in operands:
                known = _where(part, known, evaluation, holds=holds)
            return known
        case nodes.Local(name) if holds and isinstance(value := known.get(name), Range):
            return {**known, name: replace(value, nonzero=True)}
        case nodes.Compare(nodes.Local(name), (symbol,), (other,)) if symbol in _TURNED:
            return _narrowed(name, symbol, other, known, evaluation, holds=holds)
        case nodes.Compare(other, (symbol,), (nodes.Local(name),)) if symbol in _TURNED:
            return _narrowed(name, _TURNED[symbol], other, known, evaluation, holds=holds)
    return known


def _narrowed(name: str, symbol: str, other: Expression, known: _Known, evaluation: _Evaluation, *,
              holds: bool) -> _Known:
    """Return the variables where one compares so with another value."""
    value = known.get(name)
    bound = evaluation.of(other, known)
    if not isinstance(value, Range) or not isinstance(bound, Range) or "mixed" in (value.kind, bound.kind):
        return known
    if bound.nan and not holds:
        return known
    symbol = symbol if holds else _OPPOSITE[symbol]
    low, high = value.low, value.high
    if symbol in ("<", "<=", "=="):
        high = min(high, bound.high if value.kind == "float" else _whole(math.floor, bound.high))
    if symbol in (">", ">=", "=="):
        low = max(low, bound.low if value.kind == "float" else _whole(math.ceil, bound.low))
    if low > high:
        return known
    apart = (symbol == ">" and bound.low >= 0) or (symbol == "<" and bound.high <= 0) \
        or (symbol == "!=" and bound.low == bound.high == 0)
    # NaN is unlike all, and neither below nor above.
    nan = value.nan and symbol != "==" and (symbol == "!=" or not holds)
    if value.kind == "float":
        low, high = float(low), float(high)
    return {**known, name: replace(value, low=low, high=high, nan=nan, nonzero=value.nonzero or apart)}


def _whole(by: Callable[[float], int], end: Any) -> Any:
    return by(end) if math.isfinite(end) else end
