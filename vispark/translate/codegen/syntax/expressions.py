"""Writes expressions: one method per kind of node, each giving the value that it has become."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

from vispark.translate.codegen.elementwise import elementwise
from vispark.translate.codegen.emitter import Lines, same
from vispark.translate.codegen.lowering import call_library
from vispark.translate.codegen.numpy.einsum import einsum
from vispark.translate.codegen.numpy.products import product
from vispark.translate.codegen.numpy.selected import count_of_selected
from vispark.translate.codegen.operands import as_number, bool_of, plain, static
from vispark.translate.codegen.scalar import scalars
from vispark.translate.codegen.scalar.casts import cast, literal, range_of
from vispark.translate.codegen.syntax.dynamic_slices import Windows
from vispark.translate.frontend import index_faults
from vispark.translate.ir import nodes as form
from vispark.translate.ir.errors import NotConstant, Refusal, TranslationError
from vispark.translate.ir.source_text import complain
from vispark.translate.ir.types import BOOL, INT, NUMPY_BOOL
from vispark.translate.ir.values import (
    Array,
    Dict,
    ForRange,
    List,
    LocalFunction,
    Method,
    Named,
    Nothing,
    Number,
    Selected,
    Tuple,
    Value,
    chosen,
    derived,
    describe,
    join_types,
    plus,
    reindexed,
    times,
)
from vispark.translate.language import composed, registry, signatures
from vispark.translate.language.library import COMPARISONS, OPERATORS, PROPERTIES, UFUNC_OF
from vispark.translate.language.registry import register


@dataclasses.dataclass
class CallFrame:
    """Frame of one call of a function: its variables, and their uses."""

    definition: form.Definition
    variables: dict[str, Value]
    mutated: frozenset[str]
    uses: dict[str, int]
    outer: CallFrame | None = None
    jumps: bool = False


def _apply(emit: Any, *arguments: Value, symbol: str) -> Value:
    """Return an operator of ``operator``'s."""
    if len(arguments) == 1 and symbol == "not":
        return scalars.unary("not", bool_of(arguments[0]))
    if len(arguments) == 1:
        return elementwise(emit, lambda a: scalars.unary(symbol, a), *arguments)
    if symbol in COMPARISONS:
        return emit.compare(symbol, *arguments)
    return emit.operate(symbol, *arguments)


for _name, _symbol in OPERATORS.items():
    if _name != "abs":
        register(f"operator.{_name}", "a /" if _symbol in ("not", "~") or _name in ("neg", "pos") else "a b /",
                 functools.partial(_apply, symbol=_symbol), family="operator")


class Expressions(Windows):
    """Expressions of the function whose frame is current."""

    frame: CallFrame
    captures: tuple[Value, ...]

    def expression(self, node: form.Expression) -> Any:
        """Return the value of an expression; an error is reported at the expression's place."""
        with self.told_at(node):
            return getattr(self, f"_{type(node).__name__}")(node)

    @contextlib.contextmanager
    def told_at(self, node: form.Node) -> Iterator[None]:
        """Turns a refusal into an error at a node."""
        try:
            yield
        except Refusal as error:
            definition = self.frame.definition
            raise complain(str(error), node.at, definition.text, definition.name) from error

    def number(self, node: form.Expression, what: str = "a number") -> Number:
        """Return the value of an expression that must be a number."""
        value = self.expression(node)
        with self.told_at(node):
            return as_number(value, what)

    # -- names --------------------------------------------------------------------------------------------------------

    def _Literal(self, node: form.Literal) -> Value:
        if node.value is None or node.value is Ellipsis:
            return Nothing("None" if node.value is None else "...")
        if isinstance(node.value, str):
            return Nothing(node.value)
        return literal(node.value)

    def _Local(self, node: form.Local) -> Value:
        frame: CallFrame | None = self.frame
        while frame is not None:
            if node.name in frame.variables:
                value = frame.variables[node.name]
                # Under a second name it would be the same array.
                return dataclasses.replace(value, fresh=False) if isinstance(value, Array) else value
            frame = frame.outer if node.name in frame.definition.free else None
        raise Refusal(f"{node.name} may have no value here: give it one on every way that leads here")

    def _Captured(self, node: form.Captured) -> Value:
        return self.captures[node.number]

    def _Library(self, node: form.Library) -> Value:
        return Named(node.name)

    def _Called(self, node: form.Called) -> Value:
        defaults = tuple(None if parameter.default is None else self.kept(self.expression(parameter.default))
                         for parameter in node.definition.parameters)
        return LocalFunction(node.definition, defaults, self.frame if node.definition.free else None)

    def kept(self, value: Value) -> Value:
        """Return a value as it is now."""
        return self.snapshot(value)

    # -- operators ----------------------------------------------------------------------------------------------------

    def _Unary(self, node: form.Unary) -> Value:
        if node.operator == "not":
            return scalars.unary("not", self.condition(node.operand))
        operand = self.expression(node.operand)
        return elementwise(self, lambda a: scalars.unary(node.operator, a), operand)

    def _Binary(self, node: form.Binary) -> Value:
        return self.operate(node.operator, self.expression(node.left), self.expression(node.right))

    def operate(self, symbol: str, left: Value, right: Value) -> Value:
        """Return ``left symbol right``."""
        if symbol == "@":
            return product(self, left, right)
        if symbol == "**" and isinstance(left, Array) and left.type.kind == "b":
            raise Refusal("** of bools has several types in NumPy, by the exponent's value; write .astype(int) before")
        if isinstance(left, Tuple | List) and isinstance(right, Tuple | List) and symbol == "+":
            return type(left)((*left.items, *right.items))
        if isinstance(left, Tuple | List) and isinstance(right, Number) and symbol == "*":
            return type(left)(left.items * static(right, "how often a tuple is repeated must be known before the "
                                                              "kernel runs"))
        return elementwise(self, lambda a, b: scalars.binary(symbol, a, b), left, right)

    def _Compare(self, node: form.Compare) -> Value:
        left, found = self.expression(node.first), None
        for symbol, other in zip(node.operators, node.others, strict=True):
            right = self.expression(other)
            if len(node.operators) > 1 and isinstance(right, Number):
                right = self.fixed(right)
            one = self.compare(symbol, left, right)
            found = one if found is None else self.both(found, one)
            left = right
        return found

    def compare(self, symbol: str, left: Value, right: Value) -> Value:
        """Compare two values by one operator; ``is`` compares with None alone."""
        if isinstance(left, Nothing) or isinstance(right, Nothing):
            if symbol in ("is", "=="):
                return literal(left == right)
            if symbol in ("is not", "!="):
                return literal(left != right)
        if symbol in ("is", "is not"):
            raise Refusal("is compares with None only; write == for numbers")
        if symbol in ("in", "not in"):
            found = self._within(left, right)
            return scalars.unary("not", found) if symbol == "not in" else found
        if isinstance(left, Tuple | List) and type(left) is type(right) and symbol in ("==", "!="):
            return self._compare_tuples(symbol, left, right)
        if isinstance(left, Array) or isinstance(right, Array):
            return elementwise(self, lambda a, b: scalars.ufunc(UFUNC_OF[symbol], a, b), left, right)
        return elementwise(self, lambda a, b: scalars.binary(symbol, a, b), left, right)

    def _within(self, value: Value, container: Value) -> Number:
        """Return ``value in container``."""
        if isinstance(container, Array):
            equal = self.compare("==", value, container)
            return dataclasses.replace(bool_of(call_library(self, "numpy.any", (equal,), {})), type=BOOL)
        if isinstance(container, ForRange) and container.kind == "range" and len(container.items) < 3:
            low, high = (literal(0), *container.items)[-2:]
            return dataclasses.replace(self.both(self.compare("<=", low, value), self.compare("<", value, high)),
                                       type=BOOL) if as_number(value).type.kind in "iu" else self._not_whole()
        if not isinstance(container, Tuple | List):
            raise Refusal(f"in is of a tuple, a row or range(), and this is {describe(container)}")
        found = literal(False)
        for item in container.items:
            # What is the same object is found without a comparison, which a NaN would not pass.
            one = literal(True) if same(value, item) else bool_of(self.compare("==", value, item))
            found = one if found.known and not found.value else found if found.known else literal(True) \
                if one.known and one.value else Number(BOOL, f"{found.closed} || {one.closed}", atom=False)
        return dataclasses.replace(found, type=BOOL)

    def _not_whole(self) -> Number:
        raise Refusal("in range() is of whole numbers; write low <= x < high")

    def _compare_tuples(self, symbol: str, left: Tuple | List, right: Tuple | List) -> Number:
        equal = literal(len(left.items) == len(right.items))
        for a, b in zip(left.items, right.items, strict=False):
            equal = dataclasses.replace(self.both(equal, self.compare("==", a, b)), type=BOOL)
        return scalars.unary("not", equal) if symbol == "!=" else equal

    def both(self, a: Value, b: Value) -> Number:
        """Return ``a and b`` of truth values."""
        a, b = bool_of(a), bool_of(b)
        if a.known:
            return b if a.value else a
        return a if b.known and b.value else derived(Number(b.type, f"{a.closed} && {b.closed}", atom=False), a, b)

    def condition(self, node: form.Expression) -> Number:
        """Return ``bool(expression)``: of ``and`` and ``or``, whose operands may be of any types then, only the truth.
        """
        if not isinstance(node, form.Logical):
            return bool_of(self.expression(node))
        with self.told_at(node):
            found = self.condition(node.operands[0])
            for operand in node.operands[1:]:
                found = self._condition_of(node.operator, found, operand)
        return found

    def _condition_of(self, symbol: str, left: Number, right: form.Expression) -> Number:
        """Compute the right operand only if it is needed."""
        if left.known:
            return self.condition(right) if left.value == (symbol == "and") else left
        with self.apart(1) as lines:
            other = self.condition(right)
        if lines.lines:
            left = self.fixed(left)
            needed = left if symbol == "and" else scalars.unary("not", left)
            return as_number(self._chosen(needed, lines, other, None, left))
        sign = "&&" if symbol == "and" else "||"
        return derived(Number(BOOL, f"{left.closed} {sign} {other.closed}", atom=False), left, other)

    def _Logical(self, node: form.Logical) -> Value:
        found = self.expression(node.operands[0])
        for operand in node.operands[1:]:
            found = self._logical(node.operator, found, operand)
        return found

    def _logical(self, symbol: str, left: Any, right: form.Expression) -> Value:
        """Return ``and`` and ``or`` give one of their operands; the right one is computed only if it is needed."""
        test = bool_of(left)
        if test.known:
            return self.expression(right) if test.value == (symbol == "and") else left
        with self.apart(1) as lines:
            other = self.expression(right)
        if not lines.lines and all(isinstance(value, Number) and value.type.kind == "b" for value in (left, other)):
            sign = "&&" if symbol == "and" else "||"
            found: Any = join_types(left.type, other.type)
            return derived(Number(found, f"{test.closed} {sign} {other.closed}", atom=False), test, other)
        test = self.fixed(test, "holds")
        needed = test if symbol == "and" else derived(Number(BOOL, f"!{test.closed}"), test)
        return self._chosen(needed, lines, other, None, self.snapshot(left))

    def _Choice(self, node: form.Choice) -> Value:
        test = self.condition(node.test)
        if test.known:
            return self.expression(node.yes if test.value else node.no)
        with self.apart(1) as yes_lines:
            yes = self.expression(node.yes)
        with self.apart(1) as no_lines:
            no = self.expression(node.no)
        if not yes_lines.lines and not no_lines.lines and isinstance(yes, Number) and isinstance(no, Number):
            kind: Any = join_types(yes.type, no.type)
            bounds = None
            if kind == INT and yes.bounds and no.bounds:
                bounds = min(yes.bounds[0], no.bounds[0]), max(yes.bounds[1], no.bounds[1])
            a, b = cast(yes, kind), cast(no, kind)
            if kind == INT and bounds is not None:
                a, b = yes, no
            return derived(Number(kind, f"{test.closed} ? {a.closed} : {b.closed}", bounds=bounds, atom=False),
                           test, yes, no)
        return self._chosen(test, yes_lines, yes, no_lines, no)

    def _chosen(self, test: Number, yes_lines: Lines, yes: Value, no_lines: Lines, no: Value) -> Value:
        """Write the choice between two values whose lines were written apart; without ``no_lines`` the second is
        computed already.
        """
        kind = self.joined(test, yes, no)
        result = self.variable(kind, "chosen", None)
        if no_lines is None:
            self.assign(result, no)
        with self.block(f"if ({test.text})"):
            self.put(yes_lines)
            self.assign(result, yes)
        if no_lines is not None:
            with self.block("else"):
                self.put(no_lines)
                self.assign(result, no)
        fresh = all(isinstance(value, Array) and value.fresh for value in (yes, no))
        return settled(chosen(result, test, yes, no), fresh=fresh)

    # -- containers ---------------------------------------------------------------------------------------------------

    def _TupleOf(self, node: form.TupleOf) -> Value:
        return Tuple(tuple(map(self.expression, node.items)))

    def _ListOf(self, node: form.ListOf) -> Value:
        return List(tuple(map(self.expression, node.items)))

    def _DictOf(self, node: form.DictOf) -> Value:
        return Dict(node.names, tuple(map(self.expression, node.items)))

    def _Slice(self, node: form.Slice) -> Value:
        raise Refusal("a slice stands inside [...] only")

    def _Attribute(self, node: form.Attribute) -> Value:
        value = self.expression(node.value)
        if isinstance(value, Number | Array) and node.name in PROPERTIES and not (
                node.name == "dtype" and value.type.weak):
            return self.property(value, node.name)
        if isinstance(value, Selected) and node.name == "size":
            return cast(count_of_selected(self, value), INT)
        if isinstance(value, Number | Array | Selected) and node.name in registry.methods():
            return Method(value, node.name)
        raise Refusal(f"{describe(value)} has no .{node.name} here")

    def property(self, value: Number | Array, name: str) -> Value:
        """Return ``value.name`` of a number or an array."""
        shape = value.shape if isinstance(value, Array) else ()
        if name == "shape":
            return Tuple(tuple(map(literal, shape)))
        if name == "dtype":
            return Named(f"numpy.{value.type.dtype}")
        if name in ("size", "ndim"):
            return literal(len(shape) if name == "ndim" else (value.size if isinstance(value, Array) else 1))
        if name == "T":
            return call_library(self, "numpy.transpose", (value,), {})
        return call_library(self, f"numpy.{name}", (value,), {})

    def _Index(self, node: form.Index) -> Value:
        value = self.expression(node.value)
        if isinstance(value, Tuple | List):
            return self._item(value, node)
        if isinstance(value, Number) and not value.type.weak and not node.indices:
            return value
        if not isinstance(value, Array):
            raise Refusal(f"{describe(value)} has no items")
        if len(node.indices) != 1 or isinstance(node.indices[0], form.Slice | form.Literal):
            return self._sliced(value, node)
        index = self.expression(node.indices[0])
        if isinstance(index, Array) and index.type.kind == "b" and index.shape == value.shape:
            return Selected(value, index)
        if isinstance(index, List) or (isinstance(index, Array) and index.type.kind in "iu"):
            return self.gathered(value, index, node)
        return self.indexed(value, node, index)

    def _sliced(self, array: Array, node: form.Index) -> Value:
        """Return ``array[...]``; of a row whose slice has ends that only the kernel knows, the items between these."""
        one = node.indices[0] if len(node.indices) == 1 else None
        if not isinstance(one, form.Slice) or len(array.shape) != 1 or one.step not in (None, form.Literal(1)):
            return self.indexed(array, node)
        try:
            with self.apart() as lines:
                found = self.indexed(array, node)
        except NotConstant as error:
            ends = [self._end_of(part, default, array.shape[0])
                    for part, default in ((one.start, 0), (one.stop, array.shape[0]))]
            low, high = ends

            def inside(index: str) -> str:
                return f"({low} <= {index} && {index} < {high})"

            return Selected(array, Array(NUMPY_BOOL, array.shape, inside), str(error))
        self.put(lines)
        return found

    def _end_of(self, node: form.Expression | None, default: int, extent: int) -> str:
        """Return the place where a slice of a row begins or ends, as Python counts it."""
        value = Nothing() if node is None else self.expression(node)
        if isinstance(value, Nothing):
            return str(default)
        number = as_number(value, "a slice's end")
        if number.type.kind not in "iu":
            raise Refusal(f"a slice's end is {number.type}; it must be an integer")
        wide = self.keep(dataclasses.replace(cast(number, INT), bounds=None), "end")
        return self.keep(Number(INT, f"{wide.text} < 0 ? {wide.text} + {extent} : {wide.text}", atom=False), "end").text

    def gathered(self, array: Array, index: List | Array, node: form.Index) -> Value:
        """Return ``array[[1, 4]]``: the items at these places along the first axis."""
        extent = array.shape[0]
        if isinstance(index, List):
            places = [self.index(plain(one), extent, node) for one in index.items]
            items = List(tuple(self.element_of(array, place) for place in places))
            return call_library(self, "numpy.array", (items,), {})
        if not index.cheap:
            index = self.materialised(index, "places")
        axes, kept, subscript = len(index.shape), index, self._subscript(node)

        def where(*indices: str) -> tuple[str, ...]:
            return f"checked_index<{extent}>({kept.at(*indices[:axes]).text}, {subscript})", *indices[axes:]

        return dataclasses.replace(reindexed(array, (*index.shape, *array.shape[1:]), where), cheap=False, fresh=True)

    def _item(self, value: Tuple | List, node: form.Index) -> Value:
        indices = node.indices
        if len(indices) == 1 and isinstance(indices[0], form.Slice):
            return type(value)(value.items[slice(*self._slice_parts(indices[0]))])
        if not indices:
            raise Refusal("a tuple has no item (); its items are counted from 0")
        index = self.number(indices[0], "an index")
        if len(indices) == 1 and not index.known and index.sources is None and index.type.kind in "iu":
            return self.picked(value.items, index, self._subscript(node))
        position = static(index, "the index of a tuple's item must be known before the kernel runs")
        if len(indices) > 1 or not -len(value.items) <= position < len(value.items):
            raise Refusal(f"a tuple of {len(value.items)} has no item {position}")
        return value.items[position]

    def indexed(self, array: Array, subscript: form.Index, only: Value | None = None) -> Value:
        """Return ``array[...]`` by numbers, slices, None and ``...``; ``only`` is the one index's value, if it is
        known.
        """
        axis, shape = 0, list[int]()
        maps: list[Any] = []
        for node in self._expanded(array, subscript.indices):
            if isinstance(node, form.Literal) and node.value is None:
                shape.append(1)
                maps.append(None)
                continue
            extent = array.shape[axis]
            axis += 1
            if isinstance(node, form.Slice):
                start, count, step = self._range_of(node, extent)
                maps.append((start, step, len(shape)))
                shape.append(count)
            else:
                maps.append(self.index(self._index_of(node, only), extent, subscript))
        places = [entry for entry in maps if entry is not None]

        def where(*indices: str) -> tuple[str, ...]:
            return tuple(place if isinstance(place, str) else f"{indices[place[2]]} + {place[0]}"
                         if isinstance(place[0], str) else plus(times(indices[place[2]], place[1]), place[0])
                         for place in places)

        if not shape:
            return array.at(*where())
        return reindexed(array, tuple(shape), where)

    def _expanded(self, array: Array, nodes: tuple[form.Expression, ...]) -> list[form.Expression]:
        """Return the indices with ``...`` and missing ones written as slices."""
        whole = form.Slice(None, None, None)
        given = sum(not (isinstance(node, form.Literal) and node.value in (None, Ellipsis)) for node in nodes)
        missing = len(array.shape) - given
        if missing < 0:
            raise Refusal(f"{describe(array)} has {len(array.shape)} axes, and {given} indices are given")
        found: list[form.Expression] = []
        for node in nodes:
            if isinstance(node, form.Literal) and node.value is Ellipsis:
                found += [whole] * missing
                missing = 0
            else:
                found.append(node)
        return found + [whole] * missing

    def _index_of(self, node: form.Expression, known: Value | None = None) -> Number:
        value = self.expression(node) if known is None else known
        if isinstance(value, Array) and value.type.kind == "b":
            with self.told_at(node):
                raise Refusal("how many items a mask selects is not known before the kernel runs; their sum is "
                              "np.where(mask, p, 0).sum(), their mean this / mask.sum(), their largest np.where(mask, "
                              "p, -np.inf).max()")
        with self.told_at(node):
            return as_number(value, "an index")

    def _subscript(self, node: form.Index) -> str:
        """Return the number by which a kernel reports a subscript that ends it."""
        return f"{index_faults.subscript(self.frame.definition, node):#x}"

    def index(self, number: Number, extent: int, node: form.Index | str) -> str:
        """Return a C++ index expression; outside the array is an error where it is known, a fault where it is not."""
        if not isinstance(number, Number):
            raise Refusal(f"an index is {describe(number)}; it must be an integer")
        if number.type.kind not in "iu":
            raise Refusal(f"an index is {number.type}; it must be an integer")
        if number.known and not -extent <= number.value < extent:
            raise Refusal(f"index {number.value} is outside an axis of length {extent}")
        if number.known:
            return str(number.value % extent)
        low, high = number.bounds or range_of(number.type)
        if (number.bounds and high < -extent) or low >= extent:
            raise Refusal(f"the index is at least {low} here, outside an axis of length {extent}" if low >= extent else
                          f"the index is at most {high} here, outside an axis of length {extent}")
        if low >= 0 and high < extent:
            return self.fixed(number, "i").text if number.variable or not _simple(number.text) else number.text
        if -extent <= low and high < 0:
            return plus(self.fixed(number, "i").text, extent)
        subscript = node if isinstance(node, str) else self._subscript(node)
        checked = f"checked_index<{extent}>({number.text}, {subscript})"
        return self.keep(Number(INT, checked, bounds=(0, extent - 1)), "i").text

    def _range_of(self, node: form.Slice, extent: int) -> tuple[int | str, int, int]:
        """Start, count and step of a slice."""
        window = self.window(node, extent)
        if window is not None:
            return *window, 1
        found = range(*slice(*self._slice_parts(node)).indices(extent))
        return found.start, len(found), found.step

    def _slice_parts(self, node: form.Slice) -> list[int | None]:
        reason = "a slice's ends must be known before the kernel runs, as lengths are compiled in; use a loop"
        values = [Nothing() if part is None else self.expression(part) for part in (node.start, node.stop, node.step)]
        numbers = [None if isinstance(value, Nothing) else as_number(value) for value in values]
        try:
            for number in numbers:
                if number is not None and number.numpy_int:
                    static(number, reason)
            found = [None if number is None else static(number, reason) for number in numbers]
        except Refusal as error:
            raise NotConstant(str(error)) from error
        if found[2] == 0:
            raise Refusal("a slice's step is 0")
        return found

    # -- calls --------------------------------------------------------------------------------------------------------

    def _Call(self, node: form.Call) -> Value:
        function = self.expression(node.function)
        if isinstance(function, Named):
            found = self._special(function.name, node)
            if found is not None:
                return found
        arguments = tuple(one for argument in node.arguments for one in self._given(argument))
        keywords = {name: self.expression(value) for name, value in node.keywords}
        here = self.frame.definition
        try:
            return self.call(function, arguments, keywords)
        except TranslationError as error:
            if error.file != composed.__file__ or here.text.file == composed.__file__:
                raise
            # In what stands for NumPy's function, which the user has not written.
            raise complain(error.message.partition("\n")[0], node.at, here.text, here.name) from error

    def _given(self, argument: form.Expression) -> tuple[Value, ...]:
        """Return the arguments that one written one stands for: several after ``*``."""
        if isinstance(argument, form.Each):
            return (self.array_of(form.Listed(argument.value, argument.target, argument.iterable, argument.conditions,
                                              at=argument.at)),)
        if not isinstance(argument, form.Spread):
            return (self.expression(argument),)
        value = self.expression(argument.value)
        with self.told_at(argument):
            if isinstance(value, Tuple | List):
                return value.items
            if isinstance(value, Array) and value.shape and value.shape[0] <= _SPREAD:
                return tuple(self.element_of(value, str(number)) for number in range(value.shape[0]))
            raise Refusal(f"* is before a tuple or a short row, and this is {describe(value)}")

    def _Spread(self, node: form.Spread) -> Value:
        raise Refusal("* stands before an argument of a function of yours, of min or of max only")

    def call(self, function: Value, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call with values."""
        if isinstance(function, LocalFunction):
            return self.inlined(function, arguments, keywords)
        if isinstance(function, Method):
            return self.method(function, arguments, keywords)
        if not isinstance(function, Named):
            raise Refusal(f"{describe(function)} cannot be called")
        return call_library(self, function.name, arguments, keywords)

    def _special(self, name: str, node: form.Call) -> Value | None:
        """Calls whose arguments are not values: generators, and iterables for loops."""
        if name in ("range", "enumerate", "zip", "reversed"):
            values = [self.expression(argument) for argument in node.arguments]
            return self.steps(name, values, {key: self.expression(value) for key, value in node.keywords})
        first = node.arguments[0] if node.arguments else None
        if name in ("sum", "min", "max", "any", "all"):
            return self._folded(name, node)
        if name == "numpy.einsum":
            if not isinstance(first, form.Literal) or not isinstance(first.value, str):
                raise Refusal("np.einsum's subscripts are written out, as in np.einsum('ij,j->i', m, p)")
            return einsum(self, first.value, tuple(map(self.expression, node.arguments[1:])))
        if name in ("tuple", "list"):
            return self._gathered_items(name, node)
        if isinstance(first, form.Listed) and name in ("numpy.array", "numpy.asarray"):
            rest = tuple(map(self.expression, node.arguments[1:]))
            return call_library(self, name, (self.array_of(first), *rest),
                                {key: self.expression(value) for key, value in node.keywords})
        return None

    def _gathered_items(self, name: str, node: form.Call) -> Value:
        """Return ``tuple(...)`` and ``list(...)`` of a generator, a row, a tuple or several at once."""
        made = Tuple if name == "tuple" else List
        if not node.arguments:
            return made(())
        first = node.arguments[0]
        if isinstance(first, form.Each):
            return made(self.items_of_each(first))
        value = self.expression(first)
        if isinstance(value, Tuple | List):
            return made(value.items)
        return made(self.written_items(self.steps_of(value)))

    def _folded(self, name: str, node: form.Call) -> Value | None:
        """Return ``sum``, ``min`` and their like of a generator, a list comprehension or a range, or by a key."""
        if any(isinstance(one, form.Spread) for one in node.arguments):
            return None
        given, keywords = signatures.bind(name, node.arguments, dict(node.keywords))
        if name == "sum":
            given, keywords = given[:1], {"start": given[1]} if len(given) > 1 else {}
        keywords = {word: one for word, one in keywords.items() if word == "start" or one != form.Literal(None)}
        first = given[0] if len(given) == 1 else form.TupleOf(given, at=node.at)
        if isinstance(first, form.Each | form.Listed):
            return self.over_each(name, first, **keywords)
        of_range = isinstance(first, form.Call) and first.function == form.Library("range")
        if "key" in keywords or (of_range and name in ("sum", "min", "max")):
            if len(given) != 1 and "default" in keywords:
                raise Refusal(f"default of {name}() is for one row or tuple that may be empty")
            turn = form.Local("turn of the range" if of_range else "one of several", at=first.at)
            return self.over_each(name, form.Each(turn, turn, first, (), at=first.at), **keywords)
        return None

    def _Each(self, node: form.Each) -> Value:
        raise Refusal("a generator stands inside sum(), min(), max(), any() or all() only")

    def method(self, function: Method, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return ``value.name(...)``."""
        value: Any = function.value
        if isinstance(value, Array | Number) and function.name in ("conj", "conjugate") and value.type.kind != "c" \
                and not arguments:
            return value
        return call_library(self, registry.methods()[function.name], (function.value, *arguments), keywords)

    def inlined(self, function: LocalFunction, arguments: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return a call of another function of the user's."""
        raise NotImplementedError

    def over_each(self, name: str, node: form.Each | form.Listed, start: form.Expression | None = None,
                  key: form.Expression | None = None, default: form.Expression | None = None) -> Value:
        """Return ``sum(... for ...)`` and its like."""
        raise NotImplementedError

    def array_of(self, node: form.Listed) -> Value:
        """Return ``np.array([... for ...])``."""
        raise NotImplementedError

    def items_of_each(self, node: form.Each | form.Listed) -> tuple[Value, ...]:
        """Return the items of a comprehension, written out."""
        raise NotImplementedError

    def written_items(self, steps: ForRange) -> tuple[Value, ...]:
        """Return the items of a loop, to be written out turn by turn."""
        raise NotImplementedError

    def picked(self, items: tuple[Value, ...], index: Number, subscript: str) -> Value:
        """Return an item of a tuple whose place is only known as the kernel runs."""
        raise NotImplementedError

    def element_of(self, array: Array, index: str) -> Value:
        """Return ``array[index]``: a number, or a row."""
        raise NotImplementedError


def settled(value: Any, fresh: bool = False) -> Any:
    """Return a value that branches assigned, in the form after their merge: it is not assigned again; ``fresh`` if it
    is a new array in Python.
    """
    if isinstance(value, Array):
        return dataclasses.replace(value, volatile=False, storage="", fresh=fresh)
    if isinstance(value, Tuple):
        return Tuple(tuple(map(settled, value.items)))
    return dataclasses.replace(value, variable=False) if isinstance(value, Number) else value


def _simple(text: str) -> bool:
    return re.fullmatch(r"[\w\s+*()-]+", text) is not None


#: The longest row that * spreads.
_SPREAD = 64
