"""Ports of functions that take records apart: before the cache pairs become dicts, whose fields the functions read, and
named tuples become tuples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from vispark.migrate.source.edits import Edit, SourceBytes
from vispark.migrate.source.program import RddCall, SourceProgram

#: What makes dicts of pairs, before a cache.
TO_DICTS = '.map(lambda kv: {"key": kv[0], "value": kv[1]})'
#: Actions whose lists of records become lists of those as before again.
LISTS = frozenset(["collect", "take", "takeSample"])
#: Operations for which it is the same what records are.
_BLIND = frozenset(["count", "unpersist", "isEmpty", "setName"])


@dataclass(frozen=True)
class ConvertedRecords:
    """Records that a port holds as something else: pairs as dicts, named tuples of three fields or more as tuples.

    Attributes
    ----------
    name : str
        The name that the program has for the named tuples' class; empty for plain pairs.
    fields : tuple of str
        Of named tuples.
    """

    name: str = ""
    fields: tuple[str, ...] = ()

    @property
    def dicts(self) -> bool:
        """Whether they become dicts."""
        return len(self.fields) in (0, 2)

    @property
    def what(self) -> str:
        """The records as an error calls them."""
        return "named tuples" if self.fields else "pairs"

    @property
    def become(self) -> str:
        """The form that a port has them in, as an error calls it."""
        return "dicts" if self.dicts else "tuples"

    @property
    def before(self) -> str:
        """The text before the cache."""
        return TO_DICTS if self.dicts else ".map(tuple)"

    def restored(self, name: str) -> str:
        """Return the text that makes the record of what the port has in place of it.

        Examples
        --------
        >>> ConvertedRecords().restored("p"), ConvertedRecords("Point", ("x", "y", "z")).restored("p")
        ('(p["key"], p["value"])', 'Point(*p)')
        """
        return f'{self.name}({name}["key"], {name}["value"])' if self.dicts else f"{self.name}(*{name})"

    def part(self, number: int) -> str:
        """Return the text that takes a part of what the port has."""
        return ("[\"key\"]", "[\"value\"]")[number] if self.dicts else f"[{number}]"


PAIR = ConvertedRecords()


def function_edits(text: SourceBytes, function: ast.expr, form: ConvertedRecords = PAIR) -> list[Edit] | None:
    """Return the edits that make a function of records one of what a port has; None where that takes a hand.

    Examples
    --------
    >>> source = "lambda p: p[1] * (p[0] + 1)"
    >>> text = SourceBytes(source)
    >>> text.edited(function_edits(text, ast.parse(source, mode="eval").body))
    'lambda p: p["value"] * (p["key"] + 1)'
    >>> source = "lambda p: f(p) * p.y"
    >>> text, form = SourceBytes(source), ConvertedRecords("Point", ("x", "y", "z"))
    >>> text.edited(function_edits(text, ast.parse(source, mode="eval").body, form))
    'lambda p: f(Point(*p)) * p[1]'
    """
    if isinstance(function, ast.Name):
        name = "kv" if form.dicts else "each"
        return [Edit(text.start(function), text.end(function), f"lambda {name}: {function.id}({form.restored(name)})")]
    if not isinstance(function, ast.Lambda) or len(function.args.args) != 1 or _binds(function):
        return None
    name, edits = function.args.args[0].arg, list[Edit]()
    around = {each.value: each for each in ast.walk(function.body) if isinstance(each, ast.Subscript | ast.Attribute)}
    for part in ast.walk(function.body):
        if isinstance(part, ast.Name) and part.id == name:
            edits += _part_edits(text, part, around.get(part), form)
    return edits


def _part_edits(text: SourceBytes, name: ast.Name, around: ast.Subscript | ast.Attribute | None,
                form: ConvertedRecords) -> list[Edit]:
    """Return the edits of one use of a record, ``around`` which something is taken of it."""
    match around:
        case ast.Attribute(attr=field) if field in form.fields:
            return [Edit(text.end(name), text.end(around), form.part(form.fields.index(field)))]
        case ast.Subscript(slice=ast.Constant(value=int(number)) as index) if form.dicts and number in (0, 1):
            return [Edit(text.start(index), text.end(index), ('"key"', '"value"')[number])]
        case ast.Subscript() if not form.dicts:
            return []
    return [Edit(text.start(name), text.end(name), form.restored(name.id))]


def other_uses(program: SourceProgram, pairs: set[RddCall], ported: set[RddCall]) -> Iterator[RddCall]:
    """Yield the operations on cached records that would see what the port has and are not ported.

    Parameters
    ----------
    program : SourceProgram
    pairs : set of RddCall
        What makes and keeps the records.
    ported : set of RddCall
        Operations whose functions are made ones of what the port has.
    """
    for call in program.calls:
        if program.before(call) in pairs and call not in pairs | ported and call.method not in _BLIND:
            above = program.parent(call.node)
            # X.cache().first(), for the effect on X.
            if not (call.method in ("first", "take") and isinstance(above, ast.Expr)):
                yield call


def list_edits(text: SourceBytes, call: RddCall, form: ConvertedRecords = PAIR) -> list[Edit]:
    """Return the edits that make a list of records of the list of what a port has that an action gives.

    Examples
    --------
    >>> program = SourceProgram("job.py", "x, y = sc.parallelize(a).take(1)[0]")
    >>> text = SourceBytes(program.source)
    >>> text.edited(list_edits(text, program.calls[-1]))
    'x, y = [(kv["key"], kv["value"]) for kv in sc.parallelize(a).take(1)][0]'
    """
    start, end, name = text.start(call.node), text.end(call.node), "kv" if form.dicts else "each"
    return [Edit(start, start, f"[{form.restored(name)} for {name} in "), Edit(end, end, "]")]


def map_edits(text: SourceBytes, call: RddCall, form: ConvertedRecords = PAIR) -> list[Edit] | None:
    """Return the edits that have a map of records that stays in Spark take what a port has; None where that takes a
    hand.
    """
    return function_edits(text, call.node.args[0], form) if call.method in ("map", "filter", "flatMap", "foreach") \
        and len(call.node.args) == 1 and not call.node.keywords else None


def _binds(function: ast.Lambda) -> bool:
    """Return whether a function has others in it, which might give its parameter's name another meaning."""
    args = function.args
    return bool(args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults) or any(
        isinstance(each, ast.Lambda | ast.comprehension | ast.NamedExpr) for each in ast.walk(function.body))
