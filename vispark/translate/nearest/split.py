"""Split of a function that looks for nearest centres: matrix work finds its labels, and the rest is given them.

The rest is the function itself with the nearest centre for all centres: what it looks for is found at once, and the
least of its distances is the only one. Its second parameter is the label, which stands where it gave its own. That is
the same only where nothing else of the centres gets out, which is why the function is run on symbols here too. Other
than :mod:`vispark.translate.nearest.recognise`, which must understand all of a function, this goes on past what it does
not understand, if that saw no more of the centres than the label, the least distance or the nearest centre.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vispark.translate.ir import liveness
from vispark.translate.ir import nodes as form
from vispark.translate.nearest import polynomials as algebra
from vispark.translate.nearest.names import assigned_in, names_in
from vispark.translate.nearest.polynomials import Absolute, Other, Poly, Root
from vispark.translate.nearest.recognise import ArgumentFact, Nearest, Row, SymbolicRun, _axes, _measure, candidates
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


@dataclass(frozen=True, eq=False)
class CentreValue(Unknown):
    """A value of one of the centres, which need not be the nearest."""


@dataclass(frozen=True)
class Computed:
    """Value that is computed of the row and its label, outside of the search."""


@dataclass(frozen=True)
class Key:
    """Whole number that is the label plus an offset."""

    offset: int


@dataclass(frozen=True)
class LabelSplit:
    """A function whose labels matrix work finds.

    Attributes
    ----------
    rest : Function
        The function with the label, an int64, as its second parameter.
    nan : str
        As :class:`vispark.translate.nearest.recognise.Nearest` has it.
    centres : (str, int)
        "argument" or "capture", and its number among those of the function itself.
    result : Key, Row, Computed, int, float or tuple of these
        What it returns.
    """

    rest: form.Function
    nan: str
    centres: tuple[str, int]
    result: object


def split(function: form.Function, arguments: Sequence[ArgumentFact] = ()) -> LabelSplit | None:
    """Part a function that finds a row's nearest centre on its way; None if it is not surely one.

    Parameters
    ----------
    function, arguments
        As :func:`vispark.translate.nearest.recognise.recognise` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> from vispark.translate import trace
    >>> found = split(trace(lambda p, c: (np.argmin(np.sum((c - p) ** 2, axis=1)) + 1, 2.5), (np.eye(3),)))
    >>> found.result, [each.name for each in found.rest.definition.parameters]
    ((Key(offset=1), 2.5), ['p', 'label', 'c'])
    """
    for centres in candidates(function):
        run = _SplitRun(function, centres, tuple(arguments))
        try:
            parts = run.parted()
        except (Other, Open):
            continue
        if parts is not None:
            return parts
    return None


class Open(Exception):
    """More of the centres gets out than the nearest of them."""


#: Types that hold any label and a little more.
_WHOLE = frozenset(f"numpy.{name}" for name in ("int16", "int32", "int64", "uint16", "uint32", "uint64", "intp"))
_LEAST = ("numpy.min", "numpy.amin", "numpy.minimum.reduce")


@dataclass
class _SplitRun(SymbolicRun):
    """Symbolic run that goes on after statements that are not recognised, and writes the rest of the function."""

    #: What each expression was when it was last run, by its identity; what became of the functions of calls; and the
    #: names of labels that a loop over the centres leaves, by the identity of its body.
    notes: dict[int, object] = field(default_factory=dict)
    made: dict[int, form.Definition] = field(default_factory=dict)
    left: dict[int, tuple[str, Nearest]] = field(default_factory=dict)
    #: What NaN does in each of the searches.
    ways: set[str] = field(default_factory=set)
    #: How many labels were found, and returns from within a branch or a loop.
    found: int = 0
    early: int = 0
    label: str = "label"

    def parted(self) -> LabelSplit | None:
        """Return the parts, or None where nothing is looked for."""
        definition = self.function.definition
        positional = [parameter for parameter in definition.parameters if not parameter.keyword_only]
        if not positional or any(parameter.many for parameter in positional):
            raise Other
        names = set(_names(definition))
        while self.label in names:
            self.label += "_"
        kind, number = self.centres
        values: dict[str, object] = {parameter.name: Unknown() for parameter in definition.parameters}
        for place, parameter in enumerate(positional[1:]):
            argument = self.arguments[place] if place < len(self.arguments) else None
            values[parameter.name] = algebra.MATRIX if self.centres == ("argument", place) else \
                GivenNumber(argument) if isinstance(argument, int) else Unknown()
        result = self._shaped(self.call(definition, values | {positional[0].name: algebra.ROW}))
        if not self.found or len(self.ways) != 1:
            return None
        body = self._body(definition)
        if kind == "argument":
            centres = form.Local(positional[number + 1].name)
            body = (form.Assign((centres,), self._nearest_of(centres)), *body)
        first = definition.parameters.index(positional[0]) + 1
        parameters = (*definition.parameters[:first], form.Parameter(self.label), *definition.parameters[first:])
        remaining = replace(definition, parameters=parameters, body=_needed(body))
        return LabelSplit(replace(self.function, definition=remaining), self.ways.pop(), self.centres, result)

    def _shaped(self, value: object) -> object:
        """Return a result's leaves; nothing of the centres may be among them."""
        if isinstance(value, tuple):
            return tuple(self._shaped(item) for item in value)
        if isinstance(value, Nearest):
            return Key(0)
        if isinstance(value, Written):
            return value.written
        if isinstance(value, Key):
            return value
        if _open(value):
            raise Open
        return Row() if value == algebra.ROW else Computed()

    def _note_search(self, value: object) -> None:
        """Take note of what a search found."""
        if isinstance(value, Nearest):
            self.found += 1
            self.ways.add(value.nan)

    # -- the run ------------------------------------------------------------------------------------------------------

    def value(self, node: form.Expression, values: dict[str, object]) -> object:
        """Return the value of an expression; unrecognised ones are unknown if they use nothing of the centres."""
        for part in form.parts(node):
            self.notes.pop(id(part), None)
        result = self._nearest_item(node, values)
        if result is None:
            try:
                result = super().value(node, values)
            except Other:
                result = self._unknown(node, values)
        if not isinstance(node, form.Local):
            self._note_search(result)
        self.notes[id(node)] = result
        return result

    def _nearest_item(self, node: form.Expression, values: dict[str, object]) -> object:
        """Return the value of an index expression by the label: an item of the centres or of their distances; None for
        other expressions.
        """
        if not isinstance(node, form.Index):
            return None
        value = self.value(node.value, values)
        if not _open(value) or not isinstance(value, Poly | Root) or _axes(value)[:1] != ("k",):
            return None
        others = [self.value(each, values) for each in node.indices if not isinstance(each, form.Slice)]
        return Unknown() if others and isinstance(others[0], Nearest) and not any(map(_open, others)) else None

    def _unknown(self, node: form.Expression, values: dict[str, object]) -> object:
        if isinstance(node, form.Local) and node.name not in values:
            raise Open
        parts = list(form.parts(node))
        if isinstance(node, form.Call) and isinstance(node.function, form.Called):
            parts.remove(node.function)
            self._closed((node.function,), values)
        elif isinstance(node, form.Each | form.Listed | form.Called):
            self._closed((node,), values)
            return Unknown()
        for part in parts:
            value = self.notes[id(part)] if id(part) in self.notes else self.value(part, values)
            if _open(value):
                raise Open
        return Unknown()

    def _closed(self, nodes: Sequence[object], values: dict[str, object]) -> None:
        """Check that nodes refer to no value of the centres; raise ``Open`` if one does."""
        for node in nodes:
            for part in form.nodes_of(node, called=True):
                if (part == form.Captured(self.centres[1], "") and self.centres[0] == "capture") or \
                        (isinstance(part, form.Local) and _open(values.get(part.name))):
                    raise Open

    def binary(self, operator: str, left: object, right: object) -> object:
        """Apply an operator as a run does; a label plus or minus a whole number is a key."""
        key, other = (left, right) if isinstance(left, Nearest | Key) else (right, left)
        if isinstance(key, Nearest | Key) and operator in ("+", "-") and isinstance(other, Written) \
                and type(other.written) is int and (operator == "+" or key is left):
            offset = key.offset if isinstance(key, Key) else 0
            return Key(offset + (other.written if operator == "+" else -other.written))
        return super().binary(operator, left, right)

    def _called(self, node: form.Call, values: dict[str, object]) -> object:
        function = node.function
        if isinstance(function, form.Attribute) and function.name == "astype" and len(node.arguments) == 1 \
                and isinstance(node.arguments[0], form.Library) and node.arguments[0].name in _WHOLE:
            value = self.value(function.value, values)
            if isinstance(value, Nearest):
                return Key(0)
        match node:
            case form.Call(form.Library("min"), (form.Each(value, target, iterable, ()),), ()):
                place, result = self._at_each(value, target, iterable, values)
                if place.axis == "k" and _measure(result, place.name) == 1:
                    self._note_search(Nearest("start", False))
                    return Least()
        return super()._called(node, values)

    def _library(self, name: str, operands: list[object], keywords: dict[str, object]) -> object:
        if name in _WHOLE and len(operands) == 1 and isinstance(operands[0], Nearest) and not keywords:
            return Key(0)
        if name in _LEAST and len(operands) == 1 and not keywords and isinstance(operands[0], Poly | Root) \
                and _axes(operands[0]) == ("k",) and _measure(operands[0], "axis") == 1:
            self._note_search(Nearest("first", False))
            return Least()
        if name == "min" and len(operands) == 1 and not keywords and isinstance(operands[0], Poly | Root) \
                and _axes(operands[0]) == ("k",) and _measure(operands[0], "axis") == 1:
            self._note_search(Nearest("start", False))
            return Least()
        return super()._library(name, operands, keywords)

    def _extent(self, value: object) -> AxisLength:
        extent = super()._extent(value)
        if extent.axis == "k" and not isinstance(value, AxisLength):
            raise Open          # the rest has one centre
        return extent

    def _inline(self, definition: form.Definition, node: form.Call, values: dict[str, object]) -> object:
        before = self.found
        self.made.pop(id(node), None)
        value = super()._inline(definition, node, values)
        if self.found > before or _mentions(definition, self.centres):
            self.made[id(node)] = replace(definition, body=_needed(self._body(definition)),
                                          parameters=(*definition.parameters, form.Parameter(self.label)))
        return value

    def call(self, definition: form.Definition, values: dict[str, object]) -> object:
        """Return the result of a function; unknown if it returns on several branches."""
        if definition.halo is not None or definition.free:
            raise Other
        before = self.early
        *body, last = definition.body
        self.block(tuple(body), values)
        if isinstance(last, form.Return) and self.early == before:
            return self.value(last.value, values)
        self.block((last,), values)
        return Unknown()

    def block(self, body: form.Statements, values: dict[str, object]) -> None:
        """Run a block's statements; statements that are not understood leave unknown values if they use nothing of the
        centres.
        """
        for statement in body:
            try:
                super().block((statement,), values)
            except Other:
                self._past(statement, values)

    def _past(self, statement: form.Statement, values: dict[str, object]) -> None:
        match statement:
            case form.Return(value):
                self.early += 1
                self._shaped(self.value(value, values))
            case form.Assign(targets, value):
                read = [self.value(value, values), *(self.value(each, values) for target in targets
                                                     for each in _parts_of_target(target))]
                self._forget(assigned_in((statement,)) | set(map(_base, targets)), values, read)
            case form.Augment(target, _, value):
                read = [self.value(value, values), *(self.value(each, values) for each in _parts_of_target(target))]
                self._forget({_base(target)}, values, read)
            case form.If(test, body, orelse):
                if _open(self.value(test, values)):
                    raise Open
                ways = dict(values), dict(values)
                self.block(body, ways[0])
                self.block(orelse, ways[1])
                for name in set(ways[0]) | set(ways[1]):
                    one, other = ways[0].get(name), ways[1].get(name)
                    if one is not other and (_open(one) or _open(other)):
                        raise Open
                    values[name] = one if one is other else Unknown()
            case form.For(target, iterable, body, orelse):
                if _open(self.value(iterable, values)):
                    raise Open
                self._turns((*body, *orelse), assigned_in((statement,)), values)
            case form.While(test, body, orelse):
                changed = assigned_in((*body, *orelse))
                self._forget(changed, values, [])
                if _open(self.value(test, values)):
                    raise Open
                self._turns((*body, *orelse), changed, values)
            case form.Break() | form.Continue():
                pass
            case _:
                raise Open

    def _turns(self, body: form.Statements, changed: set[str], values: dict[str, object]) -> None:
        """Run a loop's body once for all turns: variables that a turn changes are unknown in it."""
        self._forget(changed, values, [])
        inner = dict(values)
        self.block(body, inner)
        for name, value in inner.items():
            if value is not values.get(name):
                self._forget({name}, values, [value])

    def _forget(self, names: set[str], values: dict[str, object], read: Sequence[object]) -> None:
        """Set names to unknown values; raise ``Open`` if one of the values depends on the centres."""
        if any(map(_open, read)) or any(_open(values.get(name)) for name in names):
            raise Open
        for name in names:
            values[name] = Unknown()

    def loop(self, target: form.Expression, steps: LoopRange, body: form.Statements, values: dict[str, object]) -> None:
        """Run a loop; variables that a loop over the centres sets, except the search's results, depend on its last
        turn.
        """
        super().loop(target, steps, body, values)
        if steps.axis == "k":
            for name in assigned_in(body) | names_in(target):
                if isinstance(values.get(name), Unknown):
                    values[name] = CentreValue()

    def _accumulate(self, place: LoopIndex, body: form.Statements, values: dict[str, object],
                    inner: dict[str, object]) -> None:
        if place.axis == "k":
            raise Open
        super()._accumulate(place, body, values, inner)
        for name in assigned_in(body):
            if isinstance(values[name], Unknown) and _open(inner.get(name)):
                values[name] = CentreValue()

    def _search(self, place: LoopIndex, body: form.Statements, values: dict[str, object], inner: dict[str, object],
                start_at: int) -> None:
        super()._search(place, body, values, inner, start_at)
        name, value = next((name, value) for name in assigned_in(body)
                           if isinstance(value := values.get(name), Nearest))
        self._note_search(value)
        self.left[id(body)] = name, value

    # -- the rest -----------------------------------------------------------------------------------------------------

    def _nearest_of(self, centres: form.Expression) -> form.Expression:
        """Return the centres without all but the nearest."""
        row = form.Index(centres, (form.Local(self.label),))
        return form.Index(row, (form.Literal(None), form.Slice(None, None, None)))

    def _body(self, definition: form.Definition) -> form.Statements:
        """Return the body as it is after the run."""
        body: list[form.Statement] = []
        for statement in definition.body:
            body += self._statements(statement)
        return tuple(body)

    def _statements(self, statement: form.Statement) -> list[form.Statement]:
        written = self._rewritten(statement)
        assert isinstance(written, form.Statement)
        if isinstance(statement, form.For) and id(statement.body) in self.left:
            name, value = self.left[id(statement.body)]
            return [written, form.Assign((form.Local(name),), self._label(value), at=statement.at)]
        return [written]

    def _label(self, nearest: Nearest) -> form.Expression:
        """Return the label as the function has it."""
        label = form.Local(self.label)
        return form.Call(form.Library("int"), (label,)) if nearest.python else label

    def _rewritten(self, part: object) -> object:
        """Return a part of a function as the rest has it."""
        if isinstance(part, tuple):
            if part and isinstance(part[0], form.Statement):
                return tuple(each for statement in part for each in self._statements(statement))
            return tuple(map(self._rewritten, part))
        if not isinstance(part, form.Node):
            return part
        if isinstance(part, form.Expression) and not isinstance(part, form.Local):
            parameter = self._given(self.notes.get(id(part)), part)
            if parameter is not None:
                return parameter
        if isinstance(part, form.Captured) and self.centres == ("capture", part.number):
            return self._nearest_of(part)
        if isinstance(part, form.Called):
            return part
        changed: dict[str, Any] = {name: self._rewritten(value) for name, value in vars(part).items() if name != "at"}
        if isinstance(part, form.Index) and _open(self.notes.get(id(part.value))) and part.indices \
                and isinstance(self.notes.get(id(part.indices[0])), Nearest):
            changed["indices"] = (form.Literal(0), *changed["indices"][1:])
        if isinstance(part, form.Call) and id(part) in self.made:
            changed["function"] = form.Called(self.made[id(part)], at=part.function.at)
            changed["keywords"] = (*changed["keywords"], (self.label, form.Local(self.label)))
        return replace(part, **changed)

    def _given(self, value: object, node: form.Expression) -> form.Expression | None:
        """Return the expression that stands for a node in the rest: the label, or a tuple with the label among its
        items; None for a node without the label.
        """
        if isinstance(value, Nearest):
            return self._label(value)
        if isinstance(value, tuple) and not isinstance(node, form.TupleOf) and _has_label(value):
            whole = self._whole(node)
            return form.TupleOf(tuple(
                self._given(item, form.Index(whole, (form.Literal(place),), at=node.at))
                or form.Index(whole, (form.Literal(place),), at=node.at) for place, item in enumerate(value)))
        return None

    def _whole(self, node: form.Expression) -> form.Expression:
        """Return an expression as the rest has it, whatever it gives."""
        note = self.notes.pop(id(node), None)
        rewritten = self._rewritten(node)
        if note is not None:
            self.notes[id(node)] = note
        assert isinstance(rewritten, form.Expression)
        return rewritten


def _open(value: object) -> bool:
    """Return whether a value depends on more of the centres than the nearest."""
    if isinstance(value, tuple):
        return any(map(_open, value))
    if isinstance(value, Root | Absolute):
        return _open(value.of)
    if isinstance(value, Poly):
        return bool(value.k) or "k" in value.axes
    return isinstance(value, EmptyArray | CentreValue) or (isinstance(value, AxisLength | LoopIndex | LoopRange)
                                                           and value.axis == "k")


def _has_label(value: object) -> bool:
    return isinstance(value, Nearest) or (isinstance(value, tuple) and any(map(_has_label, value)))


def _parts_of_target(target: form.Expression) -> Iterator[form.Expression]:
    """Yield the expressions that an assignment to an item reads."""
    if isinstance(target, form.TupleOf):
        for item in target.items:
            yield from _parts_of_target(item)
    elif not isinstance(target, form.Local):
        yield from form.parts(target)


def _base(target: form.Expression) -> str:
    """Return the name whose value an assignment changes; empty of several, which say theirs."""
    while isinstance(target, form.Index | form.Attribute | form.Spread):
        target = target.value
    return target.name if isinstance(target, form.Local) else ""


def _mentions(definition: form.Definition, centres: tuple[str, int]) -> bool:
    return centres[0] == "capture" and form.Captured(centres[1], "") in form.nodes_of(definition.body, called=True)


def _names(definition: form.Definition) -> Iterator[str]:
    """Yield all names in a function and in those that it calls."""
    yield from (parameter.name for parameter in definition.parameters)
    for node in form.nodes_of(definition.body, called=True):
        if isinstance(node, form.Local):
            yield node.name
        elif isinstance(node, form.Called):
            yield from (parameter.name for parameter in node.definition.parameters)


def _needed(body: form.Statements) -> form.Statements:
    """Return a body without unread assignments; expressions have no effects."""
    needed: list[form.Statement] = []
    after = liveness.NONE
    for statement in reversed(body):
        if isinstance(statement, form.Assign | form.Augment | form.For):
            changed = {name for each in form.nodes_of(statement, called=True)
                       if isinstance(each, form.Assign | form.Augment)
                       for target in (each.targets if isinstance(each, form.Assign) else (each.target,))
                       for name in (_base(target), *liveness.stored(target))}
            if not changed & after and not _returns(statement) and not (isinstance(statement, form.For)
                                                            and liveness.stored(statement.target) & after):
                continue
        after = liveness.live((statement,), after)
        needed.insert(0, statement)
    return tuple(needed)


def _returns(statement: form.Statement) -> bool:
    """Return whether a statement may return from the function that it stands in."""
    if isinstance(statement, form.For | form.If | form.While):
        return any(_returns(inner) for inner in (*statement.body, *statement.orelse))
    return isinstance(statement, form.Return)
